//! One exchange on a line, as the owner of the line sees it.

use base::MonoNs;

/// One exchange: bytes to send, received bytes, and an end.
///
/// The owner of the line sends the bytes from [`poll_transmit`](Self::poll_transmit), passes in received bytes, and calls
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout), until the exchange
/// [is over](Self::is_over). No method blocks. Each exchange limits its own memory.
pub trait Exchange {
    /// Appends the bytes to send now.
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>);

    /// Processes received bytes. The owner of the line discards bytes that arrive after the end.
    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]);

    /// The time of the next [`handle_timeout`](Self::handle_timeout) call if nothing is received before.
    fn poll_timeout(&self) -> Option<MonoNs>;

    /// Processes the passing of time up to `now`.
    fn handle_timeout(&mut self, now: MonoNs);

    /// The line was closed or could not be opened: the exchange is over. `why` is a text for people.
    fn handle_closed(&mut self, now: MonoNs, why: &str);

    /// Returns whether the exchange has its result.
    fn is_over(&self) -> bool;

    /// Returns whether the line must be reset before further use, because the start of the next message is unknown.
    fn spoils_line(&self) -> bool {
        false
    }
}
