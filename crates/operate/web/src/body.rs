//! Bodies of answers. The parts are created one at a time, when there is room, on a thread that may wait for files.

use crate::seats::Owner;
use crate::site::{Body, Parts};
use crate::slow::Slow;
use hyper::body::{Bytes, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body for hyper.
pub(crate) enum Outgoing {
    Whole(Bytes),
    Idle(Parts, Turns),
    Making(Pin<Box<dyn Future<Output = io::Result<PartStream>> + Send>>),
    Done,
}

/// The next part, and the source of further parts.
pub(crate) struct PartStream {
    next: Option<io::Result<Vec<u8>>>,
    parts: Parts,
    turns: Turns,
}

/// The turns for creating parts, which count for the owner of the connection.
#[derive(Clone)]
pub(crate) struct Turns {
    pub(crate) slow: Slow,
    pub(crate) owner: Owner,
}

impl Outgoing {
    /// Parts are created as slow work.
    pub(crate) fn new(body: Body, turns: &Turns) -> Self {
        match body {
            Body::Whole(bytes) if bytes.is_empty() => Self::Done,
            Body::Whole(std::borrow::Cow::Borrowed(bytes)) => Self::Whole(Bytes::from_static(bytes)),
            Body::Whole(std::borrow::Cow::Owned(bytes)) => Self::Whole(bytes.into()),
            Body::Parts(parts) => Self::Idle(parts, turns.clone()),
        }
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        loop {
            match std::mem::replace(&mut *self, Self::Done) {
                Self::Done => return Poll::Ready(None),
                Self::Whole(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Self::Idle(parts, turns) => *self = Self::Making(Box::pin(make(parts, turns))),
                Self::Making(mut making) => {
                    let Poll::Ready(made) = making.as_mut().poll(cx) else {
                        *self = Self::Making(making);
                        return Poll::Pending;
                    };
                    let PartStream { next, parts, turns } = made?;
                    match next {
                        None => return Poll::Ready(None),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        // An empty part would end a chunked body.
                        Some(Ok(bytes)) if bytes.is_empty() => *self = Self::Idle(parts, turns),
                        Some(Ok(bytes)) => {
                            *self = Self::Idle(parts, turns);
                            return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
                        }
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Done => SizeHint::with_exact(0),
            Self::Idle(..) | Self::Making(_) => SizeHint::default(),
        }
    }
}

/// Waits for a turn and creates the next part.
async fn make(mut parts: Parts, turns: Turns) -> io::Result<PartStream> {
    let turn = turns.slow.turn(turns.owner).await;
    let (next, parts) = turn
        .run(move || {
            let next = parts.next();
            (next, parts)
        })
        .await?;
    Ok(PartStream { next, parts, turns })
}
