//! Commands of EPICS modules in site scripts. The modules are compiled C code, which tahti does not have.

/// Suffix of the command with which a C application registers its compiled code.
const REGISTERS: &str = "_registerRecordDeviceDriver";

/// Commands by pattern (the first match applies), and their replacement in a script.
const ABSENT: &[(&str, &str)] = &[
    ("asynInterposeDelay", "bytes are sent at once; \"wait\" in a protocol pauses between its commands"),
    ("asynInterposeEchoConfig", "echoes are not awaited; read the echo of an \"out\" with an \"in\" of the protocol"),
    ("asyn*egisterTimeStampSource", "samples have the time of their arrival; TSE -2 takes it"),
    ("asVerify", "save_restoreShow shows the sets; \"tahti settings\" compares values with a file"),
    ("caPutLogSetTimeFmt", "the log has caPutLog's default format of times"),
    ("fdbrestoreX", "fdbrestore restores such a file"),
    ("reload_*_set", "remove_data_set NAME, then create_…_set, has the same effect"),
    ("taskDelay", "a command of VxWorks; epicsThreadSleep SECONDS waits"),
    ("asynSetMinTimerPeriod", "timers have the clock's own resolution"),
    (
        "drvAsynIPServerPortConfigure",
        "ports connect to servers and do not wait for clients; configure the device as the server",
    ),
    ("vxi11Configure", "VXI-11 is not spoken; TCP and serial lines are"),
    ("putenv", "a command of VxWorks; epicsEnvSet is iocsh's"),
    ("ld", "a command of VxWorks; dlload loads a plug-in"),
    (
        "set_savefile_name",
        "the set of NAME.req is saved as NAME.sav: name the request file so; set_savefile_path sets the folder",
    ),
    ("autosaveBuild", "info(autosaveFields, …) and makeAutosaveFiles make request files"),
    ("source", "\"< FILE\" runs a script, as does iocshLoad FILE MACROS"),
    ("require", "a module's code is not loaded; dbLoadRecords loads its databases, dlload a plug-in. Delete the line"),
    ("pvxsl", "dbl lists the records that are served"),
    ("pvxsr", "casr lists the clients"),
    ("calc", COMPUTED),
    ("dcalc", COMPUTED),
    ("iocsh", "\"< FILE\" runs a script, as does iocshLoad FILE MACROS"),
    ("load", "a command of VxWorks; dlload loads a plug-in"),
    ("shellPromptSet", "a command of VxWorks; epicsEnvSet IOCSH_PS1 TEXT sets the prompt"),
    ("saveData_*", "sscan's saveData is compiled C code; a client stores the arrays, and holds them with AWAIT"),
    ("lua*", "Lua is not run; a program of the state notation language (seq) or a client does it"),
    ("motorUtilInit", MOTOR),
    ("motorSim*", MOTOR),
    ("*Create*Axis", MOTOR),
    ("*CreateAxis", MOTOR),
    ("*CreateController", MOTOR),
    ("*CreateProfile", MOTOR),
    ("ND*Configure", DETECTOR),
    ("AD*Config*", DETECTOR),
    ("*DetectorConfig", DETECTOR),
    ("*AsynConfig*", DRIVER),
    ("drv*Config*", DRIVER),
    ("drv*Create*", DRIVER),
    ("drv*Init*", DRIVER),
    ("*Configure", DRIVER),
    ("AIMConfig", DRIVER),
    ("MultiFunctionConfig", DRIVER),
    ("icbConfig", DRIVER),
    ("*DriverInit", DRIVER),
    ("*Setup", DRIVER),
    ("tyGS*", SERIAL),
    ("ipac*", HARDWARE),
    ("init*Ip*", HARDWARE),
    ("initIP*", HARDWARE),
    ("configIp*", HARDWARE),
    ("EIP_*", DRIVER),
    ("XPS*", MOTOR),
    ("ethercatmc*", MOTOR),
    ("Galil*", MOTOR),
    ("xia*", DRIVER),
    ("mca*", DRIVER),
];
const MOTOR: &str = "a motor's driver is compiled C code, which a C IOC of the plant runs; here, motor has Simulated Motor and Soft Channel";
const DETECTOR: &str = "areaDetector's drivers and plug-ins are compiled C code, which a C IOC of the plant runs";
const COMPUTED: &str = "write the value: epicsEnvSet NAME VALUE";
const SERIAL: &str = "serial ports of VME modules are not available; drvAsynSerialPortConfigure opens one of this host";
const HARDWARE: &str = "modules of a VME crate are reached by a C IOC in that crate; records here link to its records";
const DRIVER: &str =
    "a driver is compiled C code, which a C IOC of the plant runs; TCP, serial lines and Modbus have separate DTYPs";

/// Reason why tahti does not have a module's command, and its replacement.
pub(super) fn absent(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(pattern, _)| base::glob(pattern, name)).map(|(_, why)| *why)
}

/// The command for a name. All registration commands map to one, because everything they would register is registered.
pub(super) fn resolved(name: &str) -> &str {
    if name.ends_with(REGISTERS) { "softIoc_registerRecordDeviceDriver" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::commands;

    #[test]
    fn commands_of_modules_are_accepted_or_have_a_reason() {
        let names = "asVerify appendToFile asynAutoConnect asynEnable asynInterposeDelay asynInterposeEchoConfig \
                     asynInterposeFlushConfig asynRegisterTimeStampSource asynSetAutoConnectTimeout \
                     asynSetQueueLockPortTimeout asynShowOption asynUnregisterTimeStampSource autosaveBuild \
                     caPutLogSetTimeFmt dbrestoreShow devIocStatsInit drvVendorConfigure eraseFile fdbrestoreX \
                     reload_manual_set save_restoreSet_NFSMntPoint streamReinit streamReload streamSetLogfile taskDelay";
        for name in names.split_whitespace() {
            let accepted = commands::all().any(|command| command.name == name);
            assert_ne!(accepted, absent(name).is_some(), "{name}");
        }
        assert_eq!(absent("drvPrint"), None);
    }
}
