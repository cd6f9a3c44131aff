"""Judges objects of the Prometheus operator by the schemas in the repository, and says how many there were.

judge.py SCHEMAS RENDERED
"""

import json
import sys

import jsonschema
import yaml

schemas, rendered = sys.argv[1:]
judged = 0
with open(rendered) as documents:
    for found in yaml.safe_load_all(documents):
        if not found or not found["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        name = found["apiVersion"].replace("/", "_") + "_" + found["kind"].lower()
        with open(f"{schemas}/{name}.json") as schema:
            validator = jsonschema.Draft7Validator(json.load(schema))
        for wrong in validator.iter_errors(found):
            sys.exit(f"{found['kind']}, {list(wrong.path)}: {wrong.message}")
        judged += 1
print(judged)
