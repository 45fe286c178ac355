//! `pmc 'GET CURRENT_DATA_SET'`: offset of a PTP clock from its grandmaster.

use base::DurNs;

/// The clock's state as ptp4l reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentDataSet {
    /// Clocks between this one and the grandmaster; 0 for the grandmaster itself.
    pub steps_removed: u32,
    /// Offset from the clock that it follows.
    pub offset: DurNs,
}

/// A text without the data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected stepsRemoved and offsetFromMaster")]
pub struct NoDataSet;

impl CurrentDataSet {
    /// Reads pmc's answer.
    ///
    /// # Errors
    /// The text has no such data set.
    pub fn parse(text: &str) -> Result<Self, NoDataSet> {
        let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
        let offset_ns = value("offsetFromMaster").ok_or(NoDataSet)?;
        Ok(Self {
            steps_removed: value("stepsRemoved").and_then(|text| text.parse().ok()).ok_or(NoDataSet)?,
            // Fractions of a nanosecond are dropped.
            offset: DurNs(offset_ns.split('.').next().and_then(|whole| whole.parse().ok()).ok_or(NoDataSet)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_of_pmc_is_read() {
        let text = "sending: GET CURRENT_DATA_SET\n\
                    \t521732.fffe.8dcb3e-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET \n\
                    \t\tstepsRemoved     1\n\t\toffsetFromMaster -400.0\n\t\tmeanPathDelay    1858.0\n";
        assert_eq!(CurrentDataSet::parse(text), Ok(CurrentDataSet { steps_removed: 1, offset: DurNs(-400) }));
        assert!(CurrentDataSet::parse("sending: GET CURRENT_DATA_SET\n").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-zA-Z .\n-]{0,80}") {
            let _ = CurrentDataSet::parse(&format!("stepsRemoved {text}\noffsetFromMaster {text}"));
        }
    }
}
