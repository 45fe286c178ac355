//! `tahti ioc --headers DIR`: headers with which C functions of sub and aSub records compile into a plug-in.

use crate::failure::Failure;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../../capi/include/epics/", $name)))
    };
}

/// Headers that are not generated from the field tables.
const WRITTEN: &[(&str, &str)] = &[
    ("tahti.h", include_str!("../../capi/include/tahti.h")),
    header!("alarm.h"),
    header!("callback.h"),
    header!("cantProceed.h"),
    header!("dbAccess.h"),
    header!("dbDefs.h"),
    header!("dbFldTypes.h"),
    header!("ellLib.h"),
    header!("epicsEvent.h"),
    header!("epicsExit.h"),
    header!("epicsExport.h"),
    header!("epicsMath.h"),
    header!("epicsMutex.h"),
    header!("epicsStdio.h"),
    header!("epicsStdlib.h"),
    header!("epicsString.h"),
    header!("epicsThread.h"),
    header!("epicsTime.h"),
    header!("epicsTypes.h"),
    header!("errlog.h"),
    header!("iocsh.h"),
    header!("link.h"),
    header!("recGbl.h"),
    header!("recSup.h"),
    header!("registryFunction.h"),
    header!("tahtiPlugin.h"),
];

/// Further names of headers, and the header that has their contents.
const FORWARDED: &[(&str, &str)] = &[
    ("caeventmask.h", "dbAccess.h"),
    ("compilerDependencies.h", "epicsTypes.h"),
    ("dbAccessDefs.h", "dbAccess.h"),
    ("dbAddr.h", "dbAccess.h"),
    ("dbBase.h", "dbAccess.h"),
    ("dbCoreAPI.h", "epicsTypes.h"),
    ("dbEvent.h", "dbAccess.h"),
    ("dbLink.h", "dbAccess.h"),
    ("dbLock.h", "dbAccess.h"),
    ("dbScan.h", "dbAccess.h"),
    ("dbStaticLib.h", "dbAccess.h"),
    ("devSup.h", "dbAccess.h"),
    ("epicsAssert.h", "assert.h"),
    ("epicsPrint.h", "errlog.h"),
    ("errMdef.h", "errlog.h"),
    ("libComAPI.h", "epicsTypes.h"),
    ("registry.h", "registryFunction.h"),
    ("shareLib.h", "epicsTypes.h"),
    ("special.h", "epicsTypes.h"),
];

/// Writes all headers into a folder.
pub(crate) fn run(folder: &str) -> ExitCode {
    match write(Path::new(folder)) {
        Ok(count) => {
            println!("{count} headers in {folder}");
            println!("compile functions with: cc -shared -fPIC -I {folder} -o FILE.so FILE.c");
            println!("load them with: tahti ioc --plugin FILE.so, or dlload FILE.so in a script");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tahti ioc: --headers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<usize, Failure> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    let generated = iocd::plugins::headers();
    let written = WRITTEN.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let forwarded = FORWARDED.iter().map(|(name, to)| {
        // The C library has a header with the name of one of EPICS.
        let include = if *to == "assert.h" { format!("<{to}>") } else { format!("\"{to}\"") };
        ((*name).to_owned(), format!("/* The contents are those of {to}. */\n#include {include}\n"))
    });
    let mut count = 0;
    for (name, text) in generated.into_iter().chain(written).chain(forwarded) {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        count += 1;
    }
    Ok(count)
}
