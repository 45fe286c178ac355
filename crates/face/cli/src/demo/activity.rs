//! `tahti demo activity`: joins a frame, works for a set time in each call, and sometimes exceeds it.

use crate::failure::Failure;
use base::DurNs;
use ring::Number;
use rt::frames::Member;
use rt::{Exports, VariableSpec};
use sys::clock::mono_now;

/// Activity of a frame that computes in each call and exports the number of calls
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Frame
    frame: String,
    /// Activity
    name: String,
    /// Computing time of a call
    #[arg(long, default_value = "100us")]
    work: DurNs,
    /// Computing time of a call that takes too long
    #[arg(long, default_value = "2ms")]
    bad: DurNs,
    /// One of this many calls takes too long (0: none)
    #[arg(long, default_value_t = 0)]
    every: u64,
    /// Sleep in those calls instead of computing
    #[arg(long)]
    sleep: bool,
    /// Name of the exported segment [default: the name of the activity]
    #[arg(long)]
    exports: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let exports = Exports::open(args.exports.as_ref().unwrap_or(&args.name), 1)?;
    let spec = VariableSpec { name: "calls", unit: "", first: Number::Int(0), safe: Some(Number::Int(-1)) };
    let calls = exports.add(&spec)?;
    let mut member = Member::join(&args.frame, &args.name, Some(&exports), DurNs::from_secs(20))?;
    println!("{} joined {}", args.name, args.frame);
    let mut count = 0u64;
    while let Some(turn) = member.next_turn() {
        count += 1;
        let bad = args.every > 0 && count.is_multiple_of(args.every);
        let end = mono_now() + if bad { args.bad } else { args.work };
        if bad && args.sleep {
            sys::clock::sleep_until(end);
        }
        while mono_now() < end {
            std::hint::spin_loop();
        }
        exports.set(calls, Number::Int(count as i64), turn.pulse, mono_now());
    }
    if member.frame_died() {
        return Err(format!("{} made {count} calls; then the process of its frame died", args.name).into());
    }
    println!("{} ends with its frame after {count} calls", args.name);
    Ok(())
}
