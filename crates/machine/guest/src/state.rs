//! Meaning of QEMU's run states for a guest that should run: which of them end the guest, and the remedies.

/// A guest that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Still {
    /// The cause.
    pub what: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// Whether the guest can only be restarted.
    pub is_over: bool,
}

/// The state in which KVM or the emulator could not continue.
pub const INTERNAL_ERROR: &str = "internal-error";

/// Remedy for a temporary cause.
const RESUME: &str = "continue it with `tahti guest resume`";

/// Meaning of a run state; `None` if the guest runs or QEMU is about to let it run.
#[must_use]
pub fn still(state: &str) -> Option<Still> {
    let goes_on = |what, remedy| Some(Still { what, remedy, is_over: false });
    let is_over = |what, remedy| Some(Still { what, remedy, is_over: true });
    match state {
        "running" | "prelaunch" | "save-vm" | "restore-vm" | "inmigrate" | "finish-migrate" | "postmigrate"
        | "colo" => None,
        INTERNAL_ERROR => is_over(
            "KVM or the emulator could not continue",
            "see QEMU's messages above; under KVM, set accel = \"emulated\", set another `processor`, or install a newer kernel on the host",
        ),
        "guest-panicked" => is_over("its system has crashed", "see the last messages on its console"),
        "shutdown" => is_over("it has shut down, and QEMU stays", "start it again"),
        "io-error" => goes_on(
            "a write to one of its disks failed",
            "free space on the host for its image, then continue it with `tahti guest resume`",
        ),
        "watchdog" => goes_on("its own watchdog has run out", RESUME),
        "paused" => goes_on("it was paused through QEMU's monitor", RESUME),
        "debug" => goes_on("a debugger has stopped it", RESUME),
        "suspended" => goes_on("its system sleeps", "wake it with `tahti guest resume`"),
        _ => goes_on("QEMU reports an unknown state", RESUME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_stopped_in_pausing_states_and_over_in_final_states() {
        for state in ["running", "save-vm", "restore-vm", "prelaunch"] {
            assert_eq!(still(state), None, "{state}");
        }
        for (state, over) in [
            ("internal-error", true),
            ("guest-panicked", true),
            ("shutdown", true),
            ("io-error", false),
            ("watchdog", false),
            ("paused", false),
            ("of a later QEMU", false),
        ] {
            assert_eq!(still(state).map(|still| still.is_over), Some(over), "{state}");
        }
    }
}
