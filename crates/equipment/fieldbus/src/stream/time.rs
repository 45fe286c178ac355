//! `%T(format)`: times in seconds since 1970, read and written with a `strftime` format that allows fractions of a second.
//!
//! Names are English only, as in StreamDevice. Formats are checked when the protocol is read, so unsupported directives are
//! reported there.

use super::format::Coded;
use super::syntax::Syntax;
use base::Utc;
use std::io::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Default number of digits of a fraction.
const DIGITS: u32 = 6;
const DAY_SECS: i64 = 86_400;
/// The last second of the year 9999.
const LAST: f64 = 253_402_300_799.0;

/// Seconds by which local time is ahead of UTC at a Unix time. Default: UTC.
///
/// Only the operating system has this offset, so the caller that runs a protocol supplies the function.
#[derive(Clone, Copy, Debug)]
pub struct Zone(pub fn(i64) -> i64);

impl Default for Zone {
    fn default() -> Self {
        Self(|_| 0)
    }
}

impl PartialEq for Zone {
    /// Functions cannot be compared. All zones are treated as equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An element of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Byte(u8),
    /// Matches any amount of white space. Writes one blank.
    Blank,
    /// `a A`: ignored when read.
    WeekDay {
        whole: bool,
    },
    /// `b B h`
    MonthName {
        whole: bool,
    },
    Year,
    /// `y`: 69 to 99 are 1969 to 1999.
    ShortYear,
    Month,
    /// `d`, or `e` with a blank instead of a leading zero.
    Day(u8),
    DayOfYear,
    /// `H k`
    Hour(u8),
    /// `I l`
    Hour12(u8),
    Minute,
    /// Seconds with this number of fraction digits. 0 means no fraction and no point.
    Second(u32),
    /// `f N`: the digits of a fraction, without a point.
    Fraction(u32),
    /// `p`
    HalfDay,
    /// `s`
    Unix,
    /// `z`
    Zone,
}

/// A format of `%T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeFormat {
    items: Vec<Item>,
    /// `%+hhmm`: the time zone in seconds ahead of UTC.
    zone: Option<i64>,
}

/// The parts of a time that were read from a line.
#[derive(Default)]
struct TimeParts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i64,
    /// `true` is PM, `false` is AM; set if hours count to 12.
    half: Option<bool>,
    unix: Option<i64>,
    zone: Option<i64>,
}

impl TimeFormat {
    /// Parses the text in the parentheses of `%T(…)`.
    pub(super) fn parse(text: &[Coded]) -> Result<Self, Syntax> {
        let mut format = Self { items: Vec::new(), zone: None };
        let mut rest = text;
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            match first {
                Coded::Plain(b'%') => rest = &rest[format.directive(rest)?..],
                Coded::Plain(byte) | Coded::Literal(byte) if byte.is_ascii_whitespace() => {
                    format.items.push(Item::Blank);
                }
                Coded::Plain(byte) | Coded::Literal(byte) => format.items.push(Item::Byte(*byte)),
                Coded::Blank => format.items.push(Item::Blank),
                Coded::Any => return Err(Syntax::WildTime),
            }
        }
        Ok(format)
    }

    /// Parses a directive after its `%`. Returns its length in characters.
    fn directive(&mut self, rest: &[Coded]) -> Result<usize, Syntax> {
        let byte = |at: usize| rest.get(at).and_then(|coded| coded.byte());
        let digits = |from: usize| (from..).map_while(byte).take_while(u8::is_ascii_digit).count();
        let number = |from: usize, len: usize| {
            (from..from + len.min(4)).filter_map(byte).fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
        };
        if let Some(sign @ (b'+' | b'-')) = byte(0) {
            if digits(1) != 4 {
                return Err(Syntax::Zone);
            }
            let secs = 3600 * (number(1, 4) / 100) + 60 * (number(1, 4) % 100);
            self.zone = Some(if sign == b'-' { -secs } else { secs });
            return Ok(5);
        }
        let point = usize::from(byte(0) == Some(b'.'));
        let len = digits(point);
        let count = if len == 0 { DIGITS } else { number(point, len).clamp(1, 9) as u32 };
        let at = point + len;
        let letter = byte(at).ok_or(Syntax::NoDirective)?;
        let item = match letter {
            b'S' if point == 1 => Item::Second(count),
            b'f' if point == 0 => Item::Fraction(count),
            _ if at > 0 => return Err(Syntax::Digits(letter)),
            b'N' => Item::Fraction(9),
            _ => return self.plain(letter).map(|()| 1),
        };
        self.items.push(item);
        Ok(at + 1)
    }

    /// Parses a directive of one letter.
    fn plain(&mut self, letter: u8) -> Result<(), Syntax> {
        let several = |text: &str| text.bytes().map(Coded::Plain).collect::<Vec<_>>();
        let item = match letter {
            b'%' => Item::Byte(b'%'),
            b'n' | b't' => Item::Blank,
            b'a' => Item::WeekDay { whole: false },
            b'A' => Item::WeekDay { whole: true },
            b'b' | b'h' => Item::MonthName { whole: false },
            b'B' => Item::MonthName { whole: true },
            b'Y' => Item::Year,
            b'y' => Item::ShortYear,
            b'm' => Item::Month,
            b'd' => Item::Day(b'0'),
            b'e' => Item::Day(b' '),
            b'j' => Item::DayOfYear,
            b'H' => Item::Hour(b'0'),
            b'k' => Item::Hour(b' '),
            b'I' => Item::Hour12(b'0'),
            b'l' => Item::Hour12(b' '),
            b'M' => Item::Minute,
            b'S' => Item::Second(0),
            b'p' | b'P' => Item::HalfDay,
            b's' => Item::Unix,
            b'z' => Item::Zone,
            _ => {
                let text = match letter {
                    b'D' | b'x' => "%m/%d/%y",
                    b'F' => "%Y-%m-%d",
                    b'R' => "%H:%M",
                    b'T' | b'X' => "%H:%M:%S",
                    b'r' => "%I:%M:%S %p",
                    b'c' => "%a %b %e %H:%M:%S %Y",
                    other => return Err(Syntax::Directive(other)),
                };
                let inner = Self::parse(&several(text))?;
                self.items.extend(inner.items);
                return Ok(());
            }
        };
        self.items.push(item);
        Ok(())
    }

    /// The reason why the format cannot read a time; `None` if it can.
    pub(super) fn cannot_read(&self) -> Option<String> {
        let has = |wanted: &dyn Fn(&Item) -> bool| self.items.iter().any(wanted);
        let year = has(&|item| matches!(item, Item::Year | Item::ShortYear));
        let month = has(&|item| matches!(item, Item::Month | Item::MonthName { .. }));
        let whole = has(&|item| *item == Item::Unix) || year && month && has(&|item| matches!(item, Item::Day(_)));
        if has(&|item| *item == Item::DayOfYear) {
            return Some("%j in the %T(…) of an \"in\"; expected a month and a day".to_owned());
        }
        (!whole).then(|| "%T(…) of an \"in\" without a date; expected a year, a month and a day, or %s".to_owned())
    }

    /// Writes a time. Returns `None` if it is before 1970, after the year 9999 or not a number.
    pub(super) fn print(&self, value: f64, zone: Zone, out: &mut Vec<u8>) -> Option<()> {
        if !(0.0..=LAST).contains(&value) {
            return None;
        }
        let digits = self.items.iter().map(|item| match item {
            Item::Second(digits) | Item::Fraction(digits) => *digits,
            _ => 0,
        });
        // The last written digit is rounded. This may carry into the next second.
        let digits = digits.max().unwrap_or(0);
        let unit = 10f64.powi(digits as i32);
        let fraction = (value.fract() * unit).round().min(if digits == 0 { 0.0 } else { unit });
        let carry = digits > 0 && fraction >= unit;
        let unix = value.trunc() as i64 + i64::from(carry);
        let nanos = if carry { 0 } else { (fraction / unit * 1e9).round() as u64 };
        let ahead = self.zone.unwrap_or_else(|| (zone.0)(unix));
        let local = u64::try_from(unix + ahead).ok()?;
        self.items.iter().for_each(|item| item.print(local, nanos, unix, ahead, out));
        Some(())
    }

    /// Reads a time. Returns the number of bytes consumed and the seconds since 1970.
    pub(super) fn scan(&self, line: &[u8], zone: Zone) -> Option<(usize, f64)> {
        let (mut at, mut found) = (0, TimeParts::default());
        for item in &self.items {
            at += item.scan(line.get(at..)?, &mut found)?;
        }
        let secs = match found.unix {
            Some(unix) => unix,
            None => {
                let local = found.local()?;
                let ahead = found.zone.or(self.zone);
                // The second lookup finds the offset at that time, except in the hour that occurs twice when clocks are set back.
                ahead.map_or_else(|| local - (zone.0)(local - (zone.0)(local)), |ahead| local - ahead)
            }
        };
        Some((at, secs as f64 + found.nanos as f64 / 1e9))
    }
}

impl TimeParts {
    /// Seconds since 1970 if the time were UTC; `None` if the time is invalid.
    fn local(&self) -> Option<i64> {
        let (year, month, day) = (self.year?, self.month?, self.day?);
        let hour = match self.half {
            Some(second) if (1..=12).contains(&self.hour) => self.hour % 12 + if second { 12 } else { 0 },
            Some(_) => return None,
            None => self.hour,
        };
        // A leap second counts as the next second.
        let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && self.minute < 60;
        if !fits || self.second > 60 {
            return None;
        }
        Some(base::days_from_civil(year, month, day) * DAY_SECS + hour * 3600 + self.minute * 60 + self.second)
    }
}

impl Item {
    fn print(self, local: u64, nanos: u64, unix: i64, ahead: i64, out: &mut Vec<u8>) {
        let Utc { year, month, day, hour, minute, second } = Utc::of(local);
        let hour12 = (hour + 11) % 12 + 1;
        let name = |name: &'static str, whole: bool| if whole { name } else { &name[..3] };
        let two = |value: u64, fill: u8| if fill == b'0' { format!("{value:02}") } else { format!("{value:2}") };
        let fraction = |digits: u32| format!("{:0width$}", nanos / 10u64.pow(9 - digits), width = digits as usize);
        let text = match self {
            Self::Byte(byte) => return out.push(byte),
            Self::Blank => " ".to_owned(),
            Self::WeekDay { whole } => name(DAYS[((local / 86_400 + 4) % 7) as usize], whole).to_owned(),
            Self::MonthName { whole } => name(MONTHS[month as usize - 1], whole).to_owned(),
            Self::Year => format!("{year:04}"),
            Self::ShortYear => two(year % 100, b'0'),
            Self::Month => two(month, b'0'),
            Self::Day(fill) => two(day, fill),
            Self::DayOfYear => {
                let before =
                    TimeParts { year: Some(year as i64), month: Some(1), day: Some(1), ..TimeParts::default() };
                format!("{:03}", (local as i64 - before.local().unwrap_or(0)) / DAY_SECS + 1)
            }
            Self::Hour(fill) => two(hour, fill),
            Self::Hour12(fill) => two(hour12, fill),
            Self::Minute => two(minute, b'0'),
            Self::Second(0) => two(second, b'0'),
            Self::Second(digits) => format!("{second:02}.{}", fraction(digits)),
            Self::Fraction(digits) => fraction(digits),
            Self::HalfDay => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Self::Unix => unix.to_string(),
            Self::Zone => {
                let minutes = ahead.abs() / 60;
                format!("{}{:02}{:02}", if ahead < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
            }
        };
        // A write to memory does not fail.
        let _ = out.write_all(text.as_bytes());
    }

    /// Reads the item at the start of `rest`. Returns the number of bytes consumed.
    fn scan(self, rest: &[u8], found: &mut TimeParts) -> Option<usize> {
        let (len, value) = match self {
            Self::Byte(byte) => return (rest.first() == Some(&byte)).then_some(1),
            Self::Blank => return Some(rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()),
            Self::WeekDay { .. } => return named(rest, &DAYS).map(|(len, _)| len),
            Self::MonthName { .. } => {
                let (len, month) = named(rest, &MONTHS)?;
                found.month = Some(month as i64 + 1);
                return Some(len);
            }
            Self::HalfDay => {
                found.half = Some(match rest.get(..2)?.to_ascii_uppercase().as_slice() {
                    b"AM" => false,
                    b"PM" => true,
                    _ => return None,
                });
                return Some(2);
            }
            Self::Zone => {
                let (len, secs) = offset(rest)?;
                found.zone = Some(secs);
                return Some(len);
            }
            Self::Fraction(digits) => {
                let (len, nanos) = nanos(rest, digits)?;
                found.nanos = nanos;
                return Some(len);
            }
            Self::Unix => whole(rest, 12)?,
            Self::Year => whole(rest, 4)?,
            _ => whole(rest, 2)?,
        };
        match self {
            Self::Year => found.year = Some(value),
            Self::ShortYear => found.year = Some(if value < 69 { 2000 + value } else { 1900 + value }),
            Self::Month => found.month = Some(value),
            Self::Day(_) => found.day = Some(value),
            Self::Hour(_) | Self::Hour12(_) => found.hour = value,
            Self::Minute => found.minute = value,
            Self::Unix => found.unix = Some(value),
            Self::Second(digits) => {
                found.second = value;
                if digits > 0 && rest.get(len) == Some(&b'.') {
                    let (more, nanos) = nanos(&rest[len + 1..], digits)?;
                    found.nanos = nanos;
                    return Some(len + 1 + more);
                }
            }
            _ => return None,
        }
        Some(len)
    }
}

/// A number of at most `most` digits, with leading white space: the bytes consumed and the value.
fn whole(rest: &[u8], most: usize) -> Option<(usize, i64)> {
    let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let digits = rest[blanks..].iter().take(most).take_while(|byte| byte.is_ascii_digit());
    let (len, value) = digits.fold((0, 0), |(len, value), digit| (len + 1, value * 10 + i64::from(digit - b'0')));
    (len > 0).then_some((blanks + len, value))
}

/// At most `most` digits of a fraction: the bytes consumed and the value in nanoseconds.
fn nanos(rest: &[u8], most: u32) -> Option<(usize, i64)> {
    let digits = rest.iter().take(most as usize).take_while(|byte| byte.is_ascii_digit());
    let (len, value) = digits.fold((0, 0), |(len, value), digit| (len + 1, value * 10 + i64::from(digit - b'0')));
    (len > 0).then(|| (len as usize, value * 10i64.pow(9 - len)))
}

/// A name or its first three letters, in any case: the bytes consumed and the index in `names`.
fn named(rest: &[u8], names: &[&str]) -> Option<(usize, usize)> {
    let starts = |name: &str| rest.get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    names.iter().enumerate().find_map(|(at, name)| {
        let len = if starts(name) { name.len() } else { 3 };
        starts(&name[..len]).then_some((len, at))
    })
}

/// `+hhmm`, `+hh:mm` or `Z`: the bytes consumed and the time zone in seconds ahead of UTC.
fn offset(rest: &[u8]) -> Option<(usize, i64)> {
    let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let (sign, digits) = rest[blanks..].split_first()?;
    if sign.eq_ignore_ascii_case(&b'Z') {
        return Some((blanks + 1, 0));
    }
    let colon = usize::from(digits.get(2) == Some(&b':'));
    let two = |at: usize| whole(digits.get(at..at + 2)?, 2).filter(|(len, _)| *len == 2).map(|(_, value)| value);
    let secs = 3600 * two(0)? + 60 * two(2 + colon)?;
    let secs = match sign {
        b'+' => secs,
        b'-' => -secs,
        _ => return None,
    };
    Some((blanks + 5 + colon, secs))
}
