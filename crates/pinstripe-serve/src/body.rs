//! Bodies in pieces: from a request to a writer, and from a member to an answer.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use pinstripe_base::error::{Error, Kind, Result};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The longest wait for the next piece of a body.
const PIECE_WAIT: Duration = Duration::from_secs(30);
/// A body must move at least this many bytes per second, measured from its beginning, once
/// [`PIECE_WAIT`] has passed.
const BYTES_PER_SECOND: u64 = 1024;
/// The pieces that wait between two threads.
pub(crate) const PIECES: usize = 8;

/// The pieces of a request's body.
pub(crate) struct Pieces {
    stream: BodyDataStream,
    left: u64,
    moved: u64,
    began: tokio::time::Instant,
}

impl Pieces {
    /// The body of a request that announced this length.
    pub fn new(body: Body, length: u64) -> Self {
        let began = tokio::time::Instant::now();
        Pieces { stream: body.into_data_stream(), left: length, moved: 0, began }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a body of another length, with [`Kind::Unanswered`] for one
    /// that is too slow.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let slow = || Error::new(Kind::Unanswered, "the body of the request is too slow");
        let next = timeout(PIECE_WAIT, self.stream.next()).await.map_err(|_| slow())?;
        let other = || Error::new(Kind::Corrupt, "the body has another length than announced");
        let piece = match next {
            None if self.left == 0 => return Ok(None),
            None => return Err(other()),
            Some(piece) => piece.map_err(|_| other())?,
        };
        self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(other)?;
        self.moved += piece.len() as u64;
        let elapsed = self.began.elapsed();
        if elapsed > PIECE_WAIT && self.moved / elapsed.as_secs().max(1) < BYTES_PER_SECOND {
            return Err(slow());
        }
        Ok(Some(piece))
    }

    /// Sends the pieces to `sender` while `taking`, which receives them on another thread, runs.
    /// Returns the result of `taking`.
    ///
    /// # Errors
    /// Fails with the errors of [`next`](Self::next), or else with those of `taking`.
    pub async fn feed<T>(
        mut self,
        sender: mpsc::Sender<Bytes>,
        taking: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let feeding = async {
            while let Some(piece) = self.next().await? {
                if sender.send(piece).await.is_err() {
                    break; // The receiver failed, and says why.
                }
            }
            drop(sender);
            Ok(())
        };
        let (taken, fed): (Result<T>, Result<()>) =
            futures_util::future::join(taking, feeding).await;
        fed.and(taken)
    }

    /// A body of at most the announced length, whether it ends there or before.
    ///
    /// # Errors
    /// Fails with the errors of [`next`](Self::next), except for a shorter body.
    pub async fn up_to(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Ok(None) => return Ok(bytes),
                // The stream ended before the limit.
                Err(error) if error.kind() == Kind::Corrupt && self.left > 0 => return Ok(bytes),
                Err(error) => return Err(error),
            }
        }
    }

    /// The complete body, for short ones.
    ///
    /// # Errors
    /// Fails with the errors of [`next`](Self::next).
    pub async fn whole(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// A body of the pieces that another thread sends. After an error, the connection is closed, so
/// that the client does not take the bytes so far for all.
pub(crate) fn from_pieces(pieces: mpsc::Receiver<Result<Bytes>>) -> Body {
    let each = |mut pieces: mpsc::Receiver<Result<Bytes>>| async move {
        let piece = pieces.recv().await?;
        let piece = piece.map_err(|error| std::io::Error::other(error.to_string()));
        Some((piece, pieces))
    };
    Body::from_stream(stream::unfold(pieces, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of so many pieces, each of which comes after a wait.
    fn dripping(count: usize, bytes: usize, wait: Duration) -> Body {
        let piece = move |left: usize| async move {
            tokio::time::sleep(wait).await;
            let piece = Ok::<_, std::io::Error>(Bytes::from(vec![7; bytes]));
            (left > 0).then(|| (piece, left - 1))
        };
        Body::from_stream(stream::unfold(count, piece))
    }

    async fn whole(body: Body, length: u64) -> (Option<Kind>, Duration) {
        let began = tokio::time::Instant::now();
        let read = Pieces::new(body, length).whole().await;
        (read.err().map(|error| error.kind()), began.elapsed())
    }

    /// The clock of these tests moves only when everything waits.
    #[test]
    fn a_body_that_drips_or_stops_is_given_up() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let seconds = Duration::from_secs;
            // One byte each second, and each 20 seconds.
            for wait in [1, 20] {
                let (kind, elapsed) = whole(dripping(usize::MAX, 1, seconds(wait)), 1 << 30).await;
                assert_eq!(kind, Some(Kind::Unanswered));
                assert!(elapsed <= PIECE_WAIT + seconds(wait), "{elapsed:?}");
            }
            let (kind, elapsed) = whole(dripping(9, 1 << 20, seconds(3600)), 1 << 30).await;
            assert_eq!((kind, elapsed), (Some(Kind::Unanswered), PIECE_WAIT));
            // A slow line is no attack.
            let slow = dripping(100, BYTES_PER_SECOND as usize * 10, seconds(10));
            assert_eq!(whole(slow, BYTES_PER_SECOND * 1000).await.0, None);
            // One that goes on after its announced length.
            let endless = dripping(usize::MAX, 1 << 20, Duration::ZERO);
            assert_eq!(whole(endless, (1 << 20) - 1).await.0, Some(Kind::Corrupt));
        });
    }
}
