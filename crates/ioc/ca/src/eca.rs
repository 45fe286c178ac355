//! Status codes of Channel Access (`ECA_…`).

use std::fmt;

/// A status: message number and severity in one word, as sent on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Eca(pub u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $severity:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "each carries its text")]
        impl Eca {
            $(#[doc = $text] pub const $name: Self = Self($number << 3 | $severity);)*

            /// The text of the code; `None` for codes that are not in the list, which `Display` prints as numbers.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }

            /// The code's name without `ECA_`.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    NORMAL = 0, 1, "Normal successful completion";
    ALLOCMEM = 6, 0, "Unable to allocate additional dynamic memory";
    TOLARGE = 9, 0, "The requested data transfer is greater than available memory or EPICS_CA_MAX_ARRAY_BYTES";
    TIMEOUT = 10, 0, "User specified timeout on IO operation expired";
    BADTYPE = 14, 2, "The data type specified is invalid";
    INTERNAL = 17, 6, "Channel Access Internal Failure";
    GETFAIL = 19, 0, "Channel read request failed";
    PUTFAIL = 20, 0, "Channel write request failed";
    BADCOUNT = 22, 0, "Invalid element count requested";
    BADSTR = 23, 2, "Invalid string";
    DISCONN = 24, 0, "Virtual circuit disconnect";
    DBLCHNL = 25, 0, "Identical process variable names on multiple servers";
    BADMONID = 30, 2, "Bad event subscription (monitor) identifier";
    DEFUNCT = 34, 6, "Attempt to use defunct CA feature failed";
    BADMASK = 41, 2, "Invalid event selection mask";
    IODONE = 42, 3, "IO operations have completed";
    PUTCBINPROG = 45, 2, "Put callback timed out";
    NORDACCESS = 46, 0, "Read access denied";
    NOWTACCESS = 47, 0, "Write access denied";
    NOCONVERT = 50, 0, "Element count or data type cannot be converted as requested";
    BADCHID = 51, 2, "Invalid channel identifier";
    UNAVAILINSERV = 54, 0, "Not supported by attached service";
    CHANDESTROY = 55, 0, "User destroyed channel";
    BADPRIORITY = 56, 2, "Invalid channel priority";
    CONNSEQTMO = 59, 0, "Virtual circuit connection sequence aborted";
    UNRESPTMO = 60, 0, "Virtual circuit unresponsive";
}

impl Eca {
    /// Returns whether the status is a success.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 & 1 == 1
    }
}

impl fmt::Display for Eca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "Channel Access status {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Eca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "ECA_{name}"),
            None => write!(f, "ECA({:#x})", self.0),
        }
    }
}

impl std::error::Error for Eca {}

#[cfg(test)]
mod tests {
    use super::Eca;

    #[test]
    fn codes_have_the_numbers_of_the_protocol() {
        for (code, number) in [
            (Eca::NORMAL, 1),
            (Eca::ALLOCMEM, 48),
            (Eca::TOLARGE, 72),
            (Eca::TIMEOUT, 80),
            (Eca::BADTYPE, 114),
            (Eca::INTERNAL, 142),
            (Eca::GETFAIL, 152),
            (Eca::PUTFAIL, 160),
            (Eca::BADCOUNT, 176),
            (Eca::DISCONN, 192),
            (Eca::BADMONID, 242),
            (Eca::BADMASK, 330),
            (Eca::PUTCBINPROG, 362),
            (Eca::NORDACCESS, 368),
            (Eca::NOWTACCESS, 376),
            (Eca::NOCONVERT, 400),
            (Eca::BADCHID, 410),
            (Eca::UNAVAILINSERV, 432),
        ] {
            assert_eq!(code.0, number, "{code:?}");
        }
    }
}
