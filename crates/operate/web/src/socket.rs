//! The conversation of a WebSocket with its client.

use crate::server::now;
use crate::site::{self, Next, Socket};
use base::{DurNs, MonoNs};
use futures_util::future::{Either, select};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::pin::pin;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

/// Maximum size in bytes of a message of a client.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of queued bytes for a client. A message is created only when the previous one was sent.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Maximum length in bytes of the close reason. With its code it must fit into a control frame.
const REASON_BYTES_MAX: usize = 123;
/// Maximum number of received messages between two sent messages.
const TAKEN_AT_ONCE: usize = 16;
/// Interval of pings. Browsers answer them automatically.
const PING_EVERY: DurNs = DurNs::from_secs(15);
/// Maximum time without input. After it the client is gone or does not read.
const SILENT_MAX: DurNs = DurNs::from_secs(40);

/// Runs the conversation until either side ends it.
pub(crate) async fn talk(upgraded: Upgraded, mut socket: Box<dyn Socket>) {
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(WAITING_BYTES_MAX)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let mut received_at = now().mono;
    let mut ping_at = received_at + PING_EVERY;
    loop {
        // Reads also if there is always more to send than the connection accepts.
        for _ in 0..TAKEN_AT_ONCE {
            match stream.next().now_or_never() {
                None => break,
                Some(Some(Ok(message))) if take(&message, socket.as_mut()) => received_at = now().mono,
                Some(Some(Err(error))) => return refuse(&mut stream, &error).await,
                Some(_) => return,
            }
        }
        let at = now();
        if at.mono - received_at > SILENT_MAX {
            return;
        }
        let message = if at.mono >= ping_at {
            ping_at = at.mono + PING_EVERY;
            Message::Ping(Bytes::new())
        } else {
            match socket.next(at) {
                Next::Text(text) => Message::Text(text.into()),
                Next::Bytes(bytes) => Message::Binary(bytes.into()),
                Next::Close(why) => {
                    return close(&mut stream, CloseCode::Policy, &why).await;
                }
                Next::Wait(span) => match wait(&mut stream, until(at.mono, span, ping_at)).await {
                    Some(Ok(message)) if take(&message, socket.as_mut()) => {
                        received_at = now().mono;
                        continue;
                    }
                    Some(Err(error)) => return refuse(&mut stream, &error).await,
                    Some(Ok(_)) => return,
                    None => continue,
                },
            }
        };
        if stream.send(message).await.is_err() {
            return;
        }
    }
}

/// Processes a message. Returns `false` if it ends the conversation.
fn take(message: &Message, socket: &mut dyn Socket) -> bool {
    match message {
        Message::Text(text) => socket.receive(site::Message::Text(text), now()),
        Message::Binary(bytes) => socket.receive(site::Message::Bytes(bytes), now()),
        Message::Close(_) => return false,
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
    }
    true
}

/// Maximum waiting time.
fn until(now: MonoNs, span: DurNs, ping_at: MonoNs) -> DurNs {
    span.min(ping_at - now).max(DurNs::from_us(100))
}

/// Waits up to `span` for a message. Returns an error if the connection has ended; `None` if nothing was received.
async fn wait(stream: &mut WebSocketStream<TokioIo<Upgraded>>, span: DurNs) -> Option<Result<Message, Error>> {
    match select(stream.next(), pin!(tokio::time::sleep(span.to_std()))).await {
        Either::Left((came, _)) => Some(came.unwrap_or(Err(Error::ConnectionClosed))),
        Either::Right(_) => None,
    }
}

/// Closes the conversation with a reason if the client has sent an invalid message.
async fn refuse(stream: &mut WebSocketStream<TokioIo<Upgraded>>, error: &Error) {
    let code = match error {
        Error::Capacity(_) => CloseCode::Size,
        Error::Utf8(_) => CloseCode::Invalid,
        Error::Protocol(_) => CloseCode::Protocol,
        // The connection has ended.
        _ => return,
    };
    close(stream, code, &error.to_string()).await;
}

async fn close(stream: &mut WebSocketStream<TokioIo<Upgraded>>, code: CloseCode, why: &str) {
    let reason = Utf8Bytes::from(&why[..why.floor_char_boundary(REASON_BYTES_MAX)]);
    // This fails only if the client is gone.
    let _ = stream.close(Some(CloseFrame { code, reason })).await;
}
