//! `chronyc -n -c tracking`: the accuracy of the clock under chrony.

use base::DurNs;

/// The clock's state as chrony reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// Address or name of the clock's source.
    pub source: String,
    /// Steps to a reference clock.
    pub stratum: u8,
    /// Offset of the clock from chrony's estimate of the time.
    pub offset: DurNs,
    /// Long-term average of the offset.
    pub rms_offset: DurNs,
    /// `Normal`, `Not synchronised`, or a leap second to come.
    pub leap: String,
}

/// A text that is no answer of `chronyc -c tracking`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the 14 values of chronyc -c tracking")]
pub struct NotTracking;

impl Tracking {
    /// Reads the one line of comma-separated values.
    ///
    /// # Errors
    /// The text is not such a line.
    pub fn parse(text: &str) -> Result<Self, NotTracking> {
        let fields: Vec<_> = text.trim().split(',').collect();
        let [_, address, stratum, _, offset, _, rms_offset, .., leap] = fields[..] else { return Err(NotTracking) };
        if fields.len() < 14 {
            return Err(NotTracking);
        }
        Ok(Self {
            source: address.to_owned(),
            stratum: stratum.parse().map_err(|_| NotTracking)?,
            offset: seconds(offset).ok_or(NotTracking)?,
            rms_offset: seconds(rms_offset).ok_or(NotTracking)?,
            leap: leap.to_owned(),
        })
    }
}

/// Decimal seconds such as `-0.000012345`.
fn seconds(text: &str) -> Option<DurNs> {
    format!("{text}s").trim_start_matches('+').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_chronyc_is_read() {
        let text = "C0000201,192.0.2.1,3,1795241486.672215491,-0.000012345,0.000002000,0.000020000,-12.345,0.001,0.020,\
                    0.012000000,0.001000000,64.2,Normal\n";
        let tracking = Tracking::parse(text).unwrap();
        assert_eq!((tracking.source.as_str(), tracking.stratum, tracking.leap.as_str()), ("192.0.2.1", 3, "Normal"));
        assert_eq!((tracking.offset, tracking.rms_offset), (DurNs(-12_345), DurNs::from_us(20)));
        let local = "7F7F0101,,8,1795241486.672215491,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,\
                     0.000000000,0.0,Normal";
        assert_eq!(Tracking::parse(local).unwrap().stratum, 8);
        assert!(Tracking::parse("506 Cannot talk to daemon").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-z,.+-]{0,80}") {
            let _ = Tracking::parse(&text);
        }
    }
}
