//! C functions of `sub` and `aSub` records from a plug-in: the counterpart of the plug-in part of `tahti.h`.
//!
//! A plug-in is loaded once and never unloaded: unmapping would disturb real-time threads.

use base::{Array, FieldType, Str40};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The version of the interface, `TAHTI_PLUGIN_VERSION`.
const VERSION: u32 = 1;
/// A to U, `TAHTI_ARGUMENTS`.
const ARGUMENTS: usize = 21;
/// Maximum bytes of a record's name passed to a function, including the zero.
const NAME_MAX: usize = 128;
/// Maximum bytes of a record's description, including the zero.
const DESCRIPTION_MAX: usize = 41;
/// `TAHTI_SUB` and `TAHTI_ASUB`.
const KIND_SUB: u32 = 1;
const KIND_ASUB: u32 = 2;

/// `tahti_argument`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawArgument {
    kind: u32,
    count: u32,
    room: u32,
    reserved: u32,
    data: *mut c_void,
}

const NOTHING: RawArgument = RawArgument { kind: 0, count: 0, room: 0, reserved: 0, data: std::ptr::null_mut() };

/// `tahti_call`.
#[repr(C)]
struct RawCall {
    size: u32,
    resumed: u32,
    host: *const Host,
    record: *const c_char,
    user: *mut u64,
    token: [u64; 2],
    later: u32,
    status: u16,
    severity: u16,
    inputs: [RawArgument; ARGUMENTS],
    outputs: [RawArgument; ARGUMENTS],
    data: *mut c_void,
    kind: u32,
    description: *const c_char,
    fields: Fields,
}

/// Fields of a record that its function may read: `tahti_fields`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// VAL of an aSub record.
    pub value: i32,
    /// TIME, since 1990; stored if TSE is -2.
    pub seconds: u32,
    /// Nanoseconds of TIME; stored if TSE is -2.
    pub nanoseconds: u32,
    /// STAT.
    pub status: u16,
    /// SEVR.
    pub severity: u16,
    /// NSTA.
    pub new_status: u16,
    /// NSEV.
    pub new_severity: u16,
    /// BRSV; a change is stored.
    pub bad_return: u16,
    /// PRIO.
    pub priority: u16,
    /// PREC; a change is stored.
    pub precision: i16,
    /// TSE; a change is stored.
    pub time_event: i16,
    /// TPRO; a change is stored.
    pub trace: u8,
    /// UDF; a change is stored.
    pub undefined: u8,
    /// Unused.
    pub reserved: u16,
    /// EGU of a sub record; a change is stored.
    pub units: Str40,
    /// Message of the alarm that the function raises.
    pub message: Str40,
}

/// `tahti_function`.
type RawFunction = unsafe extern "C" fn(*mut RawCall) -> c_int;

/// `tahti_host`.
#[repr(C)]
struct Host {
    size: u32,
    version: u32,
    context: Context,
    add: unsafe extern "C" fn(*const Self, *const c_char, u32, Option<RawFunction>) -> c_int,
    done: unsafe extern "C" fn(*const Self, *const [u64; 2]) -> c_int,
    add_with: AddWith,
}

type AddWith = unsafe extern "C" fn(*const Host, *const c_char, u32, Option<RawFunction>, *mut c_void) -> c_int;

/// Context of a plug-in's calls, an opaque pointer for C.
type Context = &'static Plugin;

struct Plugin {
    done: Box<dyn Fn([u64; 2]) -> bool + Send + Sync>,
    adding: Mutex<Adding>,
}

#[derive(Default)]
struct Adding {
    functions: Vec<(String, bool, RawFunction, Data)>,
    refused: Option<FunctionFault>,
}

/// The plug-in's own data for a function.
#[derive(Clone, Copy)]
struct Data(*mut c_void);

// SAFETY: tahti only passes it back; tahti.h requires functions to be callable from several threads.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

/// A function of a plug-in.
#[derive(Clone)]
pub struct CFunction {
    /// Its name in SNAM.
    pub name: String,
    /// Whether it is for `aSub` records, with arrays; otherwise for `sub`.
    pub arrays: bool,
    run: RawFunction,
    data: Data,
    host: &'static Host,
}

/// Parameters of a call other than its arguments, in both directions.
pub struct Call<'a> {
    /// Name of the record.
    pub record: &'a str,
    /// The function's private word for the record.
    pub user: &'a mut u64,
    /// Whether this call resumes an asynchronous one that has completed.
    pub resumed: bool,
    /// Passed to `tahti_host.done` on completion.
    pub token: [u64; 2],
    /// Set by the function: the call completes later.
    pub later: bool,
    /// DESC.
    pub description: &'a [u8],
    /// Other fields of the record.
    pub fields: Fields,
    /// The alarm to raise (status, severity), in EPICS' numbers.
    pub alarm: (u16, u16),
}

/// A plug-in that was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginError {
    /// Its file.
    pub file: PathBuf,
    /// The reason.
    pub why: PluginFault,
}

/// Fault of a plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginFault {
    /// This is a static binary, which cannot load plug-ins.
    Static,
    /// The file's name contains a zero byte.
    Name,
    /// The dynamic loader's error.
    Loader(String),
    /// The library lacks one of the functions of plug-ins.
    Lacks(&'static str),
    /// It was built for another version of the interface.
    Version(u32),
    /// It added an invalid function.
    Function(FunctionFault),
    /// It panicked while it added a function.
    Panicked,
    /// Its `tahti_plugin_load` returned this instead of 0.
    Returned(c_int),
    /// It added no function.
    Empty,
}

/// Fault of a function added by a plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionFault {
    /// It has no name.
    NoName,
    /// The name does not fit into SNAM.
    Name(String),
    /// The function pointer is null.
    Null(String),
    /// Its kind is invalid.
    Kind(String, u32),
    /// Its name was already added.
    Twice(String),
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.why {
            PluginFault::Static => {
                f.write_str("this is a static binary, which loads no plug-ins; use tahti's dynamic one")
            }
            PluginFault::Name => f.write_str("a zero in its name"),
            PluginFault::Loader(why) => write!(f, "cannot be loaded: {why}; {REMEDY}"),
            PluginFault::Lacks(name) => write!(f, "found a library without {name}; {REMEDY}"),
            PluginFault::Version(version) => write!(
                f,
                "found version {version} of the plug-in interface, expected {VERSION}; build it with this tahti's tahti.h"
            ),
            PluginFault::Function(why) => write!(f, "add: {why}"),
            PluginFault::Panicked => f.write_str("failed while it added a function"),
            PluginFault::Returned(result) => write!(f, "its tahti_plugin_load returned {result}, expected 0"),
            PluginFault::Empty => f.write_str("added no function; call host->add in TAHTI_PLUGIN"),
        }
    }
}

impl std::error::Error for PluginError {}

impl fmt::Display for FunctionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName => f.write_str("the name is NULL"),
            Self::Name(name) => write!(f, "found the name \"{name}\", expected 1 to 39 bytes, as SNAM holds"),
            Self::Null(name) => write!(f, "function \"{name}\" is NULL"),
            Self::Kind(name, kind) => write!(f, "\"{name}\" is of kind {kind}, expected TAHTI_SUB or TAHTI_ASUB"),
            Self::Twice(name) => write!(f, "\"{name}\" is added twice"),
        }
    }
}

const REMEDY: &str = "expected a plug-in: compiled with the headers of `tahti ioc --headers DIR`, or written against \
    tahti.h. Libraries built for C EPICS need its libraries: compile the sources of their functions again";

/// Loads a plug-in and returns the functions that it adds. `tahti_host.done` calls `done` from any thread. `done`
/// returns whether it accepted the token.
///
/// # Errors
/// The file cannot be loaded, is not a plug-in, has another version, or reports a failure.
pub fn load(
    path: &Path,
    done: impl Fn([u64; 2]) -> bool + Send + Sync + 'static,
) -> Result<Vec<CFunction>, PluginError> {
    loaded(path, done).map_err(|why| PluginError { file: path.to_owned(), why })
}

fn loaded(path: &Path, done: impl Fn([u64; 2]) -> bool + Send + Sync + 'static) -> Result<Vec<CFunction>, PluginFault> {
    if cfg!(target_feature = "crt-static") {
        return Err(PluginFault::Static);
    }
    let file = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| PluginFault::Name)?;
    // SAFETY: the name is zero-terminated. Constructors of the library run; the user who configured the plug-in trusts
    // it.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(PluginFault::Loader(last_error()));
    }
    let version = symbol(library, c"tahti_plugin_version").ok_or(PluginFault::Lacks("tahti_plugin_version"))?;
    // SAFETY: a function of this name has the type that tahti.h gives it.
    let version = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(version) }();
    if version != VERSION {
        return Err(PluginFault::Version(version));
    }
    let start = symbol(library, c"tahti_plugin_load").ok_or(PluginFault::Lacks("tahti_plugin_load"))?;
    // SAFETY: as above; TAHTI_PLUGIN declares both.
    let start = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Host) -> c_int>(start) };
    let plugin: Context = Box::leak(Box::new(Plugin { done: Box::new(done), adding: Mutex::default() }));
    let host =
        Host { size: size_of::<Host>() as u32, version: VERSION, context: plugin, add, done: done_from_c, add_with };
    let host: &'static Host = Box::leak(Box::new(host));
    // SAFETY: the table lives as long as the process.
    let result = unsafe { start(host) };
    let mut adding = plugin.adding.lock().map_err(|_| PluginFault::Panicked)?;
    if let Some(refused) = adding.refused.take() {
        return Err(PluginFault::Function(refused));
    }
    if result != 0 {
        return Err(PluginFault::Returned(result));
    }
    let functions = std::mem::take(&mut adding.functions);
    if functions.is_empty() {
        return Err(PluginFault::Empty);
    }
    Ok(functions.into_iter().map(|(name, arrays, run, data)| CFunction { name, arrays, run, data, host }).collect())
}

/// Prepares a process that only runs a plug-in: it is killed when the thread that started it ends, and text that the
/// plug-in prints goes to standard error.
///
/// # Errors
/// The kernel's.
pub fn isolate() -> std::io::Result<()> {
    // SAFETY: integers only.
    let killed = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // SAFETY: integers only; both descriptors stay open as long as the process.
    let printed = unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) };
    if killed < 0 || printed < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: an open library and a zero-terminated string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Last error of the dynamic loader.
fn last_error() -> String {
    // SAFETY: no argument; the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not NULL, and zero-terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn add(host: *const Host, name: *const c_char, kind: u32, function: Option<RawFunction>) -> c_int {
    // SAFETY: the same contract.
    unsafe { add_with(host, name, kind, function, std::ptr::null_mut()) }
}

unsafe extern "C" fn add_with(
    host: *const Host,
    name: *const c_char,
    kind: u32,
    function: Option<RawFunction>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: NULL, or the table passed to the plug-in, which is never freed.
    let Some(host) = (unsafe { host.as_ref() }) else { return -1 };
    let Ok(mut adding) = host.context.adding.lock() else { return -1 };
    // SAFETY: NULL, or a zero-terminated string by the plug-in's contract.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    match adding.add(name, kind, function, Data(data)) {
        Ok(()) => 0,
        Err(why) => {
            adding.refused.get_or_insert(why);
            -1
        }
    }
}

impl Adding {
    fn add(
        &mut self,
        name: Option<String>,
        kind: u32,
        function: Option<RawFunction>,
        data: Data,
    ) -> Result<(), FunctionFault> {
        let name = name.ok_or(FunctionFault::NoName)?;
        // Capacity of SNAM.
        if name.is_empty() || name.len() > 39 {
            return Err(FunctionFault::Name(name));
        }
        let Some(function) = function else { return Err(FunctionFault::Null(name)) };
        let arrays = match kind {
            KIND_SUB => false,
            KIND_ASUB => true,
            other => return Err(FunctionFault::Kind(name, other)),
        };
        if self.functions.iter().any(|(known, for_arrays, ..)| *known == name && *for_arrays == arrays) {
            return Err(FunctionFault::Twice(name));
        }
        self.functions.push((name, arrays, function, data));
        Ok(())
    }
}

unsafe extern "C" fn done_from_c(host: *const Host, token: *const [u64; 2]) -> c_int {
    // SAFETY: NULL, or the table passed to the plug-in, which is never freed.
    let host = unsafe { host.as_ref() };
    // SAFETY: NULL, or the caller's token.
    let token = unsafe { token.as_ref() };
    match (host, token) {
        (Some(host), Some(token)) if (host.context.done)(*token) => 0,
        _ => -1,
    }
}

impl CFunction {
    /// Calls a function of `sub` records with A to U, and VAL. Real-time: like the function.
    pub fn call_numbers(&self, call: &mut Call<'_>, inputs: &mut [f64; ARGUMENTS], value: &mut f64) -> i32 {
        let of = |number: &mut f64| RawArgument {
            kind: type_number(FieldType::F64),
            count: 1,
            room: 1,
            reserved: 0,
            data: std::ptr::from_mut(number).cast(),
        };
        let mut outputs = [NOTHING; ARGUMENTS];
        outputs[0] = of(value);
        self.call(call, inputs.each_mut().map(of), &mut outputs)
    }

    /// Calls a function of `aSub` records with A to U, and VALA to VALU, with their capacities in elements. Allocates
    /// only if an output never had its capacity.
    pub fn call_arrays(
        &self,
        call: &mut Call<'_>,
        inputs: &mut [Array; ARGUMENTS],
        outputs: &mut [Array; ARGUMENTS],
        capacity: &[u32; ARGUMENTS],
        room: &[u32; ARGUMENTS],
    ) -> i32 {
        let mut given = inputs.each_mut().map(|array| argument(array, array.len() as u32));
        given.iter_mut().zip(capacity).for_each(|(one, capacity)| one.room = one.room.max(*capacity));
        let mut taken = [NOTHING; ARGUMENTS];
        for (to, (array, room)) in taken.iter_mut().zip(outputs.iter_mut().zip(room)) {
            let count = array.len().min(*room as usize) as u32;
            array.resize(*room as usize);
            *to = RawArgument { count, ..argument(array, *room) };
        }
        let result = self.call(call, given, &mut taken);
        inputs.iter_mut().for_each(end_texts);
        for (array, from) in outputs.iter_mut().zip(&taken) {
            array.truncate(from.count as usize);
            end_texts(array);
        }
        result
    }

    fn call(
        &self,
        call: &mut Call<'_>,
        inputs: [RawArgument; ARGUMENTS],
        outputs: &mut [RawArgument; ARGUMENTS],
    ) -> i32 {
        let mut name = [0u8; NAME_MAX];
        let len = call.record.len().min(NAME_MAX - 1);
        name[..len].copy_from_slice(&call.record.as_bytes()[..len]);
        let mut description = [0u8; DESCRIPTION_MAX];
        let len = call.description.len().min(DESCRIPTION_MAX - 1);
        description[..len].copy_from_slice(&call.description[..len]);
        let mut raw = RawCall {
            size: size_of::<RawCall>() as u32,
            resumed: call.resumed.into(),
            host: self.host,
            record: name.as_ptr().cast(),
            user: call.user,
            token: call.token,
            later: 0,
            status: 0,
            severity: 0,
            inputs,
            outputs: *outputs,
            data: self.data.0,
            kind: if self.arrays { KIND_ASUB } else { KIND_SUB },
            description: description.as_ptr().cast(),
            fields: call.fields,
        };
        // SAFETY: all pointers are valid for the call, and arguments have as many elements as they declare.
        let result = unsafe { (self.run)(&raw mut raw) };
        *outputs = raw.outputs;
        call.later = raw.later != 0;
        call.alarm = (raw.status, raw.severity);
        call.fields = raw.fields;
        // Texts written by C end within their maximum length.
        for text in [&mut call.fields.units, &mut call.fields.message] {
            *text = Str40::new(text.padded());
        }
        result
    }
}

/// An argument for an array with all its elements, of which `room` may be written.
fn argument(array: &mut Array, room: u32) -> RawArgument {
    let kind = type_number(array.kind());
    let data: *mut c_void = match array {
        Array::String(elements) => elements.as_mut_ptr().cast(),
        Array::I8(elements) => elements.as_mut_ptr().cast(),
        Array::U8(elements) => elements.as_mut_ptr().cast(),
        Array::I16(elements) => elements.as_mut_ptr().cast(),
        Array::U16(elements) | Array::Enum(elements) => elements.as_mut_ptr().cast(),
        Array::I32(elements) => elements.as_mut_ptr().cast(),
        Array::U32(elements) => elements.as_mut_ptr().cast(),
        Array::I64(elements) => elements.as_mut_ptr().cast(),
        Array::U64(elements) => elements.as_mut_ptr().cast(),
        Array::F32(elements) => elements.as_mut_ptr().cast(),
        Array::F64(elements) => elements.as_mut_ptr().cast(),
    };
    RawArgument { kind, count: room, room, reserved: 0, data }
}

/// Terminates texts written by C within their maximum length.
fn end_texts(array: &mut Array) {
    if let Array::String(texts) = array {
        texts.iter_mut().for_each(|text| *text = Str40::new(text.padded()));
    }
}

/// EPICS' numbers of the types, `TAHTI_STRING` and so on.
const fn type_number(kind: FieldType) -> u32 {
    match kind {
        FieldType::String | FieldType::Link => 0,
        FieldType::I8 => 1,
        FieldType::U8 => 2,
        FieldType::I16 => 3,
        FieldType::U16 => 4,
        FieldType::I32 => 5,
        FieldType::U32 => 6,
        FieldType::I64 => 7,
        FieldType::U64 => 8,
        FieldType::F32 => 9,
        FieldType::F64 => 10,
        FieldType::Enum | FieldType::Menu | FieldType::Device => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_a_plug_in_is_refused_with_the_remedy() {
        let missing = load(Path::new("/no/such/plugin.so"), |_| true).err().unwrap().to_string();
        if cfg!(target_feature = "crt-static") {
            assert!(missing.contains("a static binary, which loads no plug-ins"), "{missing}");
            return;
        }
        assert!(missing.starts_with("/no/such/plugin.so: cannot be loaded: "), "{missing}");
        // A library that is already loaded in every process.
        let libc = load(Path::new("libc.so.6"), |_| true).err().unwrap().to_string();
        assert!(libc.contains("found a library without tahti_plugin_version") && libc.contains("tahti.h"), "{libc}");
    }

    #[test]
    fn texts_end_at_their_39th_byte_at_the_latest() {
        let mut texts = Array::zeros(FieldType::String, 1);
        let raw = argument(&mut texts, 1);
        for at in 0..40 {
            // SAFETY: an element has 40 bytes, all of which C may write.
            unsafe { raw.data.cast::<u8>().wrapping_add(at).write(b'x') };
        }
        end_texts(&mut texts);
        assert_eq!(texts, Array::String(vec![Str40::new(&[b'x'; 39])]));
    }
}
