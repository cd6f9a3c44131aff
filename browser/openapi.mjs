// node openapi.mjs URL
// Holds the description of an API against the rules of OpenAPI. Prints what it describes.
import { Validator } from "@seriousme/openapi-schema-validator";

const answer = await fetch(process.argv[2]);
if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
const document = await answer.json();
const found = await new Validator().validate(document);
if (!found.valid) {
  for (const fault of [found.errors].flat()) {
    console.error(typeof fault === "string" ? fault : `${fault.instancePath}: ${fault.message}`);
  }
  process.exit(1);
}
const { paths, components } = document;
console.log(`OpenAPI ${document.openapi}, ${Object.keys(paths).length} paths, ${Object.keys(components.schemas).length} shapes`);
