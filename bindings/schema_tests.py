"""The schema of the plant file accepts valid plants and refuses others. Usage: schema_tests.py TAHTI"""

import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import jsonschema

TAHTI = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = json.loads(subprocess.run([TAHTI, "schema"], check=True, capture_output=True).stdout)
jsonschema.Draft202012Validator.check_schema(SCHEMA)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def errors(text):
    return [error.message for error in VALIDATOR.iter_errors(tomllib.loads(text))]


def plants():
    """The plant files of the examples, and those of `tahti init`."""
    for file in sorted((ROOT / "examples").glob("**/plant.toml")):
        yield str(file), file.read_text()
    for template in ["loop", "ioc", "equipment", "frame", "full"]:
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder) / "plant"
            subprocess.run([TAHTI, "init", made, "--template", template], check=True, capture_output=True)
            yield template, (made / "plant.toml").read_text()


count = 0
for name, text in plants():
    assert errors(text) == [], f"{name}: {errors(text)}"
    count += 1
assert count > 10, f"{count} plants"

PLANT = '[plant]\nname = "a"\n'
for wrong, says in [
    (PLANT + '[[process]]\nname = "x"\ncomand = "y"\n', "'comand' was unexpected"),
    (PLANT + '[[process]]\nname = "x"\n', "'command' is a required property"),
    (PLANT + '[dashboard]\nwrite = "yes"\n', "'yes' is not of type 'boolean'"),
    (PLANT + '[archive]\nname = "a"\nfolder = "a"\nwhen_full = "never"\n', "'never' is not valid"),
    (PLANT + "[shields]\n", "'shields' was unexpected"),
]:
    assert any(says in error for error in errors(wrong)), f"{wrong}: {errors(wrong)}"
# A choice may be a variable.
assert errors(PLANT + '[variables]\n[archive]\nname = "a"\nfolder = "a"\nwhen_full = "${FULL}"\n') == []
print(f"{count} plants fit the schema")
