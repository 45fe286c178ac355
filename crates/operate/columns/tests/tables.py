"""What DuckDB, pandas and polars read of our files, as JSON: tests/table_readers.rs says what it should be."""

import json
import sys

import duckdb
import pandas
import polars

many, one, foreign = sys.argv[1:]

TEMP = "signal = 'RF:TEMP' and gap is null"
db = duckdb.connect()
first = lambda what, where: db.sql(f"select {what} from '{many}' where {where} limit 1").fetchall()[0]
found = {
    "duckdb": {
        "rows": first("count(*)", "true")[0],
        "names": [row[0] for row in db.sql(f"select distinct signal from '{many}'").fetchall()],
        "gaps": first("gap, lost", "gap is not null"),
        "temp": first("epoch_ns(time), value, pulse, severity", f"{TEMP} and pulse = 999"),
        "count": first("value_i64", "signal = 'RF:COUNT' and pulse = 3")[0],
        "label": first("label", "signal = 'RF:STATE' and pulse = 3")[0],
        "text": first("text", "signal = 'RF:NAME' and pulse = 3")[0],
        "waves": [first("array_f64", f"signal = 'RF:WAVE' and pulse = {k}")[0] for k in range(3)],
        "word": first("array_text", "signal = 'RF:WORDS' and pulse = 3")[0],
        "natural": db.sql(f"select value from '{one}' where pulse = 3").fetchall()[0][0] == 1.0,
    }
}

df = pandas.read_parquet(many)
assert str(df.time.dtype) == "datetime64[ns, UTC]", df.time.dtype
at = lambda name, pulse: df[(df.signal == name) & (df.pulse == pulse)].iloc[0]
temp = at("RF:TEMP", 999)
gap = df[df.gap.notna()].iloc[0]
# By default, pandas converts integer columns with missing values to doubles. Backend pyarrow keeps the integers.
exact = pandas.read_parquet(many, dtype_backend="pyarrow")
found["pandas"] = {
    "rows": len(df),
    "names": df.signal.unique().tolist(),
    "gaps": [gap.gap, int(gap.lost)],
    "temp": [int(temp.time.value), temp.value, int(temp.pulse), int(temp.severity)],
    "count": int(exact[(exact.signal == "RF:COUNT") & (exact.pulse == 3)].value_i64.iloc[0]),
    "label": at("RF:STATE", 3).label,
    "text": at("RF:NAME", 3).text,
    "waves": [at("RF:WAVE", k).array_f64.tolist() for k in range(3)],
    "word": at("RF:WORDS", 3).array_text.tolist(),
    "natural": bool(pandas.read_parquet(one).value.iloc[3] == 1.0),
}

pl = polars.read_parquet(many)
assert pl.schema["time"] == polars.Datetime("ns", "UTC"), pl.schema
row = lambda name, pulse: pl.filter((polars.col("signal") == name) & (polars.col("pulse") == pulse))
temp = row("RF:TEMP", 999)
gap = pl.filter(polars.col("gap").is_not_null()).row(0, named=True)
found["polars"] = {
    "rows": len(pl),
    "names": pl["signal"].unique().to_list(),
    "gaps": [gap["gap"], gap["lost"]],
    "temp": [temp["time"].dt.timestamp("ns")[0], temp["value"][0], temp["pulse"][0], temp["severity"][0]],
    "count": row("RF:COUNT", 3)["value_i64"][0],
    "label": row("RF:STATE", 3)["label"][0],
    "text": row("RF:NAME", 3)["text"][0],
    "waves": [row("RF:WAVE", k)["array_f64"][0].to_list() for k in range(3)],
    "word": row("RF:WORDS", 3)["array_text"][0].to_list(),
    "natural": polars.read_parquet(one)["value"][3] == 1.0,
}

begin = 1_795_456_258_919_055_407
pandas.DataFrame(
    {
        "signal": ["PD:A"] * 10,
        "time": pandas.to_datetime([begin + k for k in range(10)], utc=True),
        "value": [k / 2 for k in range(10)],
        "pulse": range(10),
    }
).to_parquet(foreign)

json.dump(found, sys.stdout)
