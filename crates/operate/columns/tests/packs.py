"""What DuckDB, pandas and polars read of an archive's packs, as JSON: tests/table_readers.rs says what it should be."""

import glob
import json
import sys

import duckdb
import pandas
import polars

pattern = sys.argv[1]

db = duckdb.connect()
first = lambda what, where: db.sql(f"select {what} from '{pattern}' where {where} limit 1").fetchall()[0]
found = {
    "duckdb": {
        "rows": first("count(*)", "true")[0],
        "gaps": first("count(*)", "gap = 'overflow' and lost = 7")[0],
        "temp": first("epoch_ns(time), value, pulse, severity", "signal = 'RF:TEMP' and pulse = 1999"),
        "sum": int(first("sum(9223372036854775807 - value_i64)", "signal = 'RF:COUNT'")[0]),
        "label": first("label", "signal = 'RF:STATE' and pulse = 3")[0],
        "text": first("text", "signal = 'RF:NAME' and pulse = 3")[0],
        "waves": [first("array_f64", f"signal = 'RF:WAVE' and pulse = {k}")[0] for k in range(3)],
        "word": first("array_text", "signal = 'RF:WORDS' and pulse = 3")[0],
        "beam": first("value", "signal = 'RF:BEAM' and pulse = 3")[0],
    }
}

# By default, pandas converts integer columns with missing values to doubles. Backend pyarrow keeps the integers.
df = pandas.read_parquet(sorted(glob.glob(pattern)), dtype_backend="pyarrow")
at = lambda name, pulse: df[(df.signal == name) & (df.pulse == pulse)].iloc[0]
temp = at("RF:TEMP", 1999)
found["pandas"] = {
    "rows": len(df),
    "gaps": int(((df.gap == "overflow") & (df.lost == 7)).sum()),
    "temp": [int(temp.time.value), temp.value, int(temp.pulse), int(temp.severity)],
    "sum": sum(9223372036854775807 - int(v) for v in df[df.signal == "RF:COUNT"].value_i64.dropna()),
    "label": at("RF:STATE", 3).label,
    "text": at("RF:NAME", 3).text,
    "waves": [list(at("RF:WAVE", k).array_f64) for k in range(3)],
    "word": list(at("RF:WORDS", 3).array_text),
    "beam": at("RF:BEAM", 3).value,
}

pl = polars.scan_parquet(pattern).collect()
assert pl.schema["time"] == polars.Datetime("ns", "UTC"), pl.schema
row = lambda name, pulse: pl.filter((polars.col("signal") == name) & (polars.col("pulse") == pulse))
temp = row("RF:TEMP", 1999)
found["polars"] = {
    "rows": len(pl),
    "gaps": len(pl.filter((polars.col("gap") == "overflow") & (polars.col("lost") == 7))),
    "temp": [temp["time"].dt.timestamp("ns")[0], temp["value"][0], temp["pulse"][0], temp["severity"][0]],
    "sum": sum(9223372036854775807 - v for v in pl.filter(polars.col("signal") == "RF:COUNT")["value_i64"].drop_nulls()),
    "label": row("RF:STATE", 3)["label"][0],
    "text": row("RF:NAME", 3)["text"][0],
    "waves": [row("RF:WAVE", k)["array_f64"][0].to_list() for k in range(3)],
    "word": row("RF:WORDS", 3)["array_text"][0].to_list(),
    "beam": row("RF:BEAM", 3)["value"][0],
}

json.dump(found, sys.stdout)
