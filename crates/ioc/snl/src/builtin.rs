//! Table of the functions and constants of the language, and of C's library as far as programs use it.

use crate::ast::{Prim, Ty};

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fun {
    Delay,
    PvGet,
    PvGetComplete,
    PvGetCancel,
    PvPut,
    PvPutComplete,
    PvPutCancel,
    /// Of the first elements of an array: whether reads (`true`) or writes are complete.
    PvArrayComplete(bool),
    PvArrayCancel(bool),
    PvArrayMonitor(bool),
    PvArraySync,
    PvArrayConnected,
    PvGetQ,
    PvFlushQ,
    /// With `true`, program parameters in the name are replaced.
    PvAssign(bool),
    PvMonitor(bool),
    PvSync,
    PvCount,
    PvStatus,
    PvSeverity,
    PvMessage,
    PvName,
    PvTimeStamp,
    PvAssigned,
    PvConnected,
    PvIndex,
    PvFlush,
    PvChannelCount,
    PvAssignCount,
    PvConnectCount,
    EfSet,
    EfClear,
    EfTest,
    EfTestAndClear,
    MacValueGet,
    OptGet,
    /// Prints; the number of arguments before the format, and whether a line end is added.
    Print(u8, bool),
    Sprintf,
    Snprintf,
    Sscanf,
    /// Copies a text; the second is whether it is appended, the third whether its length is limited.
    Copy(bool, bool),
    /// Compares texts: whether case matters, whether the length is limited.
    Compare(bool, bool),
    Strlen,
    /// The first (or, with `true`, last) character in a text.
    Strchr(bool),
    Strstr,
    Atoi,
    Atof,
    Strtol,
    Strtod,
    Character(u8),
    Abs,
    Math(u8),
    Math2(u8),
    Memset,
    Memcpy,
    Rand,
    Srand,
    Time,
    Now,
    Seconds,
    TimeDiff,
    Sleep,
    Nothing,
}

/// Type of an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Void,
    Int,
    Unsigned,
    Long,
    Size,
    Double,
    Text,
    Pointer,
    Flag,
    Stamp,
}

impl Type {
    pub(crate) fn ty(self) -> Ty {
        match self {
            Self::Void | Self::Int => Ty::INT,
            Self::Unsigned => Ty::Prim(Prim::U32),
            Self::Long => Ty::Prim(Prim::I64),
            Self::Size => Ty::Prim(Prim::U64),
            Self::Double => Ty::Prim(Prim::F64),
            Self::Text => Ty::Prim(Prim::I8).ptr(),
            Self::Pointer => Ty::Void.ptr(),
            Self::Flag => Ty::Flag,
            Self::Stamp => Ty::Struct("epicsTimeStamp".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Param {
    Is(Type),
    Channel,
    /// An array whose elements are channels.
    Channels,
    /// Any number of further arguments.
    More,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    pub(crate) fun: Fun,
    pub(crate) name: &'static str,
    pub(crate) result: Type,
    pub(crate) required: usize,
    pub(crate) params: &'static [Param],
}

impl Builtin {
    /// The number of arguments, for messages.
    pub(crate) fn expected(&self) -> String {
        match self.params.last() {
            Some(Param::More) => format!("at least {}", self.required),
            _ if self.required == self.params.len() => self.required.to_string(),
            _ => format!("{} to {}", self.required, self.params.len()),
        }
    }
}

const I: Param = Param::Is(Type::Int);
const U: Param = Param::Is(Type::Unsigned);
const N: Param = Param::Is(Type::Size);
const D: Param = Param::Is(Type::Double);
const S: Param = Param::Is(Type::Text);
const P: Param = Param::Is(Type::Pointer);
const E: Param = Param::Is(Type::Flag);
const C: Param = Param::Channel;
const CC: Param = Param::Channels;
const MORE: Param = Param::More;

type Row = (&'static str, Fun, Type, usize, &'static [Param]);

const TABLE: &[Row] = &[
    ("delay", Fun::Delay, Type::Int, 1, &[D]),
    ("pvGet", Fun::PvGet, Type::Int, 1, &[C, I, D]),
    ("pvGetComplete", Fun::PvGetComplete, Type::Int, 1, &[C]),
    ("pvGetCancel", Fun::PvGetCancel, Type::Void, 1, &[C]),
    ("pvPut", Fun::PvPut, Type::Int, 1, &[C, I, D]),
    ("pvPutComplete", Fun::PvPutComplete, Type::Int, 1, &[C]),
    ("pvPutCancel", Fun::PvPutCancel, Type::Void, 1, &[C]),
    ("pvArrayGetComplete", Fun::PvArrayComplete(true), Type::Int, 2, &[CC, U, I, P]),
    ("pvArrayPutComplete", Fun::PvArrayComplete(false), Type::Int, 2, &[CC, U, I, P]),
    ("pvArrayGetCancel", Fun::PvArrayCancel(true), Type::Void, 2, &[CC, U]),
    ("pvArrayPutCancel", Fun::PvArrayCancel(false), Type::Void, 2, &[CC, U]),
    ("pvArrayMonitor", Fun::PvArrayMonitor(true), Type::Int, 2, &[CC, U]),
    ("pvArrayStopMonitor", Fun::PvArrayMonitor(false), Type::Int, 2, &[CC, U]),
    ("pvArraySync", Fun::PvArraySync, Type::Void, 3, &[CC, U, E]),
    ("pvArrayConnected", Fun::PvArrayConnected, Type::Int, 2, &[CC, U]),
    ("pvGetQ", Fun::PvGetQ, Type::Int, 1, &[C]),
    ("pvFlushQ", Fun::PvFlushQ, Type::Void, 1, &[C]),
    ("pvFreeQ", Fun::PvFlushQ, Type::Void, 1, &[C]),
    ("pvAssign", Fun::PvAssign(false), Type::Int, 2, &[C, S]),
    ("pvAssignSubst", Fun::PvAssign(true), Type::Int, 2, &[C, S]),
    ("pvMonitor", Fun::PvMonitor(true), Type::Int, 1, &[C]),
    ("pvStopMonitor", Fun::PvMonitor(false), Type::Int, 1, &[C]),
    ("pvSync", Fun::PvSync, Type::Void, 2, &[C, E]),
    ("pvCount", Fun::PvCount, Type::Unsigned, 1, &[C]),
    ("pvStatus", Fun::PvStatus, Type::Int, 1, &[C]),
    ("pvSeverity", Fun::PvSeverity, Type::Int, 1, &[C]),
    ("pvMessage", Fun::PvMessage, Type::Text, 1, &[C]),
    ("pvName", Fun::PvName, Type::Text, 1, &[C]),
    ("pvTimeStamp", Fun::PvTimeStamp, Type::Stamp, 1, &[C]),
    ("pvAssigned", Fun::PvAssigned, Type::Int, 1, &[C]),
    ("pvConnected", Fun::PvConnected, Type::Int, 1, &[C]),
    ("pvIndex", Fun::PvIndex, Type::Unsigned, 1, &[C]),
    ("pvFlush", Fun::PvFlush, Type::Void, 0, &[]),
    ("pvChannelCount", Fun::PvChannelCount, Type::Unsigned, 0, &[]),
    ("pvAssignCount", Fun::PvAssignCount, Type::Unsigned, 0, &[]),
    ("pvConnectCount", Fun::PvConnectCount, Type::Unsigned, 0, &[]),
    ("efSet", Fun::EfSet, Type::Void, 1, &[E]),
    ("efClear", Fun::EfClear, Type::Int, 1, &[E]),
    ("efTest", Fun::EfTest, Type::Int, 1, &[E]),
    ("efTestAndClear", Fun::EfTestAndClear, Type::Int, 1, &[E]),
    ("macValueGet", Fun::MacValueGet, Type::Text, 1, &[S]),
    ("optGet", Fun::OptGet, Type::Int, 1, &[S]),
    ("printf", Fun::Print(0, false), Type::Int, 1, &[S, MORE]),
    ("errlogPrintf", Fun::Print(0, false), Type::Int, 1, &[S, MORE]),
    ("epicsPrintf", Fun::Print(0, false), Type::Int, 1, &[S, MORE]),
    ("fprintf", Fun::Print(1, false), Type::Int, 2, &[I, S, MORE]),
    ("errlogSevPrintf", Fun::Print(1, false), Type::Int, 2, &[I, S, MORE]),
    ("errlogMessage", Fun::Print(0, false), Type::Int, 1, &[S]),
    ("puts", Fun::Print(0, true), Type::Int, 1, &[S]),
    ("sprintf", Fun::Sprintf, Type::Int, 2, &[S, S, MORE]),
    ("snprintf", Fun::Snprintf, Type::Int, 3, &[S, N, S, MORE]),
    ("epicsSnprintf", Fun::Snprintf, Type::Int, 3, &[S, N, S, MORE]),
    ("sscanf", Fun::Sscanf, Type::Int, 2, &[S, S, MORE]),
    ("strcpy", Fun::Copy(false, false), Type::Text, 2, &[S, S]),
    ("strncpy", Fun::Copy(false, true), Type::Text, 3, &[S, S, N]),
    ("strcat", Fun::Copy(true, false), Type::Text, 2, &[S, S]),
    ("strncat", Fun::Copy(true, true), Type::Text, 3, &[S, S, N]),
    ("strcmp", Fun::Compare(true, false), Type::Int, 2, &[S, S]),
    ("strncmp", Fun::Compare(true, true), Type::Int, 3, &[S, S, N]),
    ("strcasecmp", Fun::Compare(false, false), Type::Int, 2, &[S, S]),
    ("epicsStrCaseCmp", Fun::Compare(false, false), Type::Int, 2, &[S, S]),
    ("strncasecmp", Fun::Compare(false, true), Type::Int, 3, &[S, S, N]),
    ("epicsStrnCaseCmp", Fun::Compare(false, true), Type::Int, 3, &[S, S, N]),
    ("strlen", Fun::Strlen, Type::Size, 1, &[S]),
    ("strchr", Fun::Strchr(false), Type::Text, 2, &[S, I]),
    ("strrchr", Fun::Strchr(true), Type::Text, 2, &[S, I]),
    ("strstr", Fun::Strstr, Type::Text, 2, &[S, S]),
    ("atoi", Fun::Atoi, Type::Int, 1, &[S]),
    ("atol", Fun::Atoi, Type::Long, 1, &[S]),
    ("atof", Fun::Atof, Type::Double, 1, &[S]),
    ("strtol", Fun::Strtol, Type::Long, 3, &[S, P, I]),
    ("strtod", Fun::Strtod, Type::Double, 2, &[S, P]),
    ("abs", Fun::Abs, Type::Int, 1, &[I]),
    ("labs", Fun::Abs, Type::Long, 1, &[Param::Is(Type::Long)]),
    ("memset", Fun::Memset, Type::Pointer, 3, &[P, I, N]),
    ("memcpy", Fun::Memcpy, Type::Pointer, 3, &[P, P, N]),
    ("memmove", Fun::Memcpy, Type::Pointer, 3, &[P, P, N]),
    ("rand", Fun::Rand, Type::Int, 0, &[]),
    ("srand", Fun::Srand, Type::Void, 1, &[U]),
    ("time", Fun::Time, Type::Long, 1, &[P]),
    ("epicsTimeGetCurrent", Fun::Now, Type::Int, 1, &[P]),
    ("pvTimeGetCurrentDouble", Fun::Seconds, Type::Int, 1, &[P]),
    ("epicsTimeDiffInSeconds", Fun::TimeDiff, Type::Double, 2, &[P, P]),
    ("epicsThreadSleep", Fun::Sleep, Type::Void, 1, &[D]),
    ("fflush", Fun::Nothing, Type::Int, 1, &[I]),
];

type Unary = fn(f64) -> f64;
type Binary = fn(f64, f64) -> f64;
type OfCharacter = fn(u8) -> i32;

/// Functions of a number.
pub(crate) const MATH: [(&str, Unary); 20] = [
    ("fabs", f64::abs),
    ("sqrt", f64::sqrt),
    ("exp", f64::exp),
    ("log", f64::ln),
    ("log10", f64::log10),
    ("log2", f64::log2),
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tan", f64::tan),
    ("asin", f64::asin),
    ("acos", f64::acos),
    ("atan", f64::atan),
    ("sinh", f64::sinh),
    ("cosh", f64::cosh),
    ("tanh", f64::tanh),
    ("floor", f64::floor),
    ("ceil", f64::ceil),
    ("rint", f64::round_ties_even),
    ("round", f64::round),
    ("trunc", f64::trunc),
];

/// Functions of two numbers.
pub(crate) const MATH2: [(&str, Binary); 6] = [
    ("pow", f64::powf),
    ("atan2", f64::atan2),
    ("fmod", |left, right| left % right),
    ("hypot", f64::hypot),
    ("fmin", f64::min),
    ("fmax", f64::max),
];

/// Functions of a character.
pub(crate) const CHARACTERS: [(&str, OfCharacter); 9] = [
    ("toupper", |byte| i32::from(byte.to_ascii_uppercase())),
    ("tolower", |byte| i32::from(byte.to_ascii_lowercase())),
    ("isdigit", |byte| i32::from(byte.is_ascii_digit())),
    ("isalpha", |byte| i32::from(byte.is_ascii_alphabetic())),
    ("isalnum", |byte| i32::from(byte.is_ascii_alphanumeric())),
    ("isspace", |byte| i32::from(byte.is_ascii_whitespace() || byte == 11)),
    ("isupper", |byte| i32::from(byte.is_ascii_uppercase())),
    ("islower", |byte| i32::from(byte.is_ascii_lowercase())),
    ("isprint", |byte| i32::from((32..127).contains(&byte))),
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<Builtin> {
    if let Some((name, fun, result, required, params)) = TABLE.iter().find(|row| row.0 == name).copied() {
        return Some(Builtin { fun, name, result, required, params });
    }
    let of =
        |fun, name, result, params: &'static [Param]| Builtin { fun, name, result, required: params.len(), params };
    if let Some((nth, (name, _))) = MATH.iter().enumerate().find(|(_, row)| row.0 == name) {
        return Some(of(Fun::Math(nth as u8), name, Type::Double, &[D]));
    }
    if let Some((nth, (name, _))) = MATH2.iter().enumerate().find(|(_, row)| row.0 == name) {
        return Some(of(Fun::Math2(nth as u8), name, Type::Double, &[D, D]));
    }
    let (nth, (name, _)) = CHARACTERS.iter().enumerate().find(|(_, row)| row.0 == name)?;
    Some(of(Fun::Character(nth as u8), name, Type::Int, &[I]))
}

/// The values of `compType`.
pub(crate) const ASYNC: i64 = 1;
pub(crate) const SYNC: i64 = 2;

/// The values of `pvStat` that are not an alarm status.
pub(crate) const STAT_OK: i64 = 0;
pub(crate) const STAT_ERROR: i64 = -1;
pub(crate) const STAT_DISCONNECTED: i64 = -2;
pub(crate) const STAT_TIMEOUT: i64 = 10;

const INTS: &[(&str, i64)] = &[
    ("TRUE", 1),
    ("FALSE", 0),
    ("true", 1),
    ("false", 0),
    ("ASYNC", ASYNC),
    ("SYNC", SYNC),
    ("NOEVFLAG", 0),
    ("MAX_STRING_SIZE", 40),
    ("stdout", 1),
    ("stderr", 2),
    ("INT_MAX", i32::MAX as i64),
    ("INT_MIN", i32::MIN as i64),
    ("RAND_MAX", i32::MAX as i64),
    ("NO_ALARM", 0),
    ("MINOR_ALARM", 1),
    ("MAJOR_ALARM", 2),
    ("INVALID_ALARM", 3),
    ("errlogInfo", 0),
    ("errlogMinor", 1),
    ("errlogMajor", 2),
    ("errlogFatal", 3),
    ("pvStatERROR", STAT_ERROR),
    ("pvStatDISCONN", STAT_DISCONNECTED),
    ("pvSevrOK", 0),
    ("pvSevrERROR", -1),
    ("pvSevrNONE", 0),
    ("pvSevrMINOR", 1),
    ("pvSevrMAJOR", 2),
    ("pvSevrINVALID", 3),
];

/// The alarm status names of `pvStat…`, by number.
const STATUS: [&str; 22] = [
    "OK",
    "READ",
    "WRITE",
    "HIHI",
    "HIGH",
    "LOLO",
    "LOW",
    "STATE",
    "COS",
    "COMM",
    "TIMEOUT",
    "HW_LIMIT",
    "CALC",
    "SCAN",
    "LINK",
    "SOFT",
    "BAD_SUB",
    "UDF",
    "DISABLE",
    "SIMM",
    "READ_ACCESS",
    "WRITE_ACCESS",
];

/// A constant with its type.
pub(crate) fn constant(name: &str) -> Option<(u64, Ty)> {
    if let Some((_, value)) = INTS.iter().find(|(known, _)| *known == name) {
        return Some((*value as u64, Ty::INT));
    }
    if let Some(status) = name.strip_prefix("pvStat")
        && let Some(number) = STATUS.iter().position(|known| *known == status)
    {
        return Some((number as u64, Ty::INT));
    }
    Some(match name {
        "NULL" => (0, Ty::Void.ptr()),
        "M_PI" | "PI" => (std::f64::consts::PI.to_bits(), Ty::Prim(Prim::F64)),
        "DBL_MAX" | "HUGE_VAL" => (f64::MAX.to_bits(), Ty::Prim(Prim::F64)),
        _ => return None,
    })
}
