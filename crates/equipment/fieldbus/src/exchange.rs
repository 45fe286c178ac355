//! One exchange on a line, as whoever holds the line sees it.

use base::MonoNs;

/// One exchange: bytes out, bytes in, an end.
///
/// The holder of the line calls [`poll_transmit`](Self::poll_transmit) and sends, hands over what it receives, and wakes
/// it at [`poll_timeout`](Self::poll_timeout), until it [is over](Self::is_over). No method blocks; memory is bounded by
/// each exchange's own limits.
pub trait Exchange {
    /// Appends the bytes that are to be sent now.
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>);

    /// Takes bytes that came. Bytes after its end are the holder's to drop.
    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]);

    /// When it wants to be woken if nothing comes.
    fn poll_timeout(&self) -> Option<MonoNs>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: MonoNs);

    /// The line was closed, or could not be opened: the exchange is over. `why` is for people.
    fn handle_closed(&mut self, now: MonoNs, why: &str);

    /// Whether it has its result.
    fn is_over(&self) -> bool;

    /// Whether the line cannot be used further as it is, because it is no longer known where a message begins.
    fn spoils_line(&self) -> bool {
        false
    }
}
