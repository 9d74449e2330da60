//! The catalog that the hosts of a server share, as a host uses it.
//!
//! A request to the catalog is sent once: a backup does not wait for a database that is down.
//! Invariant: an intake that is dropped before its end closes its stream without the last frame, so
//! that the server takes back what it has of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::units::MIB;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{
    CatalogAnswer, CatalogQuestion, CatalogSize, Change, ChangeSink, SharedCatalog, SharedHead,
    SnapshotSeries, SnapshotSync,
};
use reqwest::{Body, Method};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::catalog_frames::{
    AnswerFrame, FRAME_MAX_BYTES, FrameReader, encode_changes, encode_rows_end, encode_rows_head,
};
use crate::catalog_messages::{
    CATALOG_REQUEST_MAX_BYTES, CatalogRequest, decode_count, decode_head, decode_size, decode_sync,
};
use crate::client::RemoteClient;

/// The longest wait for the answer to a request of one piece, and for the next piece of an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// The longest wait until the server takes a frame: other hosts may be before this one.
const TAKES: Duration = Duration::from_secs(330);
/// The longest wait for the end of a removal, which reads the rows of whole series.
const REMOVAL: Duration = Duration::from_secs(600);
/// The frames that wait to be sent.
const FRAMES: usize = 4;
/// The most bytes of an answer of one piece: every snapshot of a comparison.
const ANSWER_MAX_BYTES: u64 = CATALOG_REQUEST_MAX_BYTES as u64 + MIB;

/// The shared catalog of a volume.
pub struct RemoteCatalog {
    client: Arc<RemoteClient>,
}

impl RemoteCatalog {
    /// The catalog of the client's volume.
    #[must_use]
    pub fn new(client: Arc<RemoteClient>) -> RemoteCatalog {
        RemoteCatalog { client }
    }

    /// The catalog of the client's volume, if an answer of the server has said that there is one.
    #[must_use]
    pub fn of(client: Arc<RemoteClient>) -> Option<RemoteCatalog> {
        client.offers_catalog().then_some(RemoteCatalog { client })
    }

    fn path(&self) -> String {
        format!("{}/catalog", self.client.connection.volume)
    }

    fn request(&self, request: &CatalogRequest, patience: Duration) -> Result<Vec<u8>> {
        let body = request.encode();
        if body.len() > CATALOG_REQUEST_MAX_BYTES {
            let what = "the store has too many snapshots for one request to the shared catalog";
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (client, path) = (&self.client, self.path());
        let with = client.request(Method::POST, &path).timeout(patience).body(body);
        let answered = client.runtime.block_on(client.once(with, ANSWER_MAX_BYTES));
        answered.map(|answer| answer.body).map_err(|fault| fault.into_error())
    }

    fn read<T>(&self, bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
        decode(bytes).map_err(|error| error.at(&self.client.connection.address))
    }
}

impl SharedCatalog for RemoteCatalog {
    fn compare(&self, listed: &[SnapshotId], all_hosts: bool) -> Result<SnapshotSync> {
        let request = CatalogRequest::Compare { listed: listed.to_vec(), all_hosts };
        self.read(&self.request(&request, ANSWER)?, decode_sync)
    }

    fn head(&self, snapshot: &Snapshot) -> Result<Option<SharedHead>> {
        let (host, sources) = (snapshot.host.clone(), snapshot.sources.clone());
        let request = CatalogRequest::Head { id: snapshot.id, host, sources };
        self.read(&self.request(&request, ANSWER)?, decode_head)
    }

    fn take_in(
        &self,
        snapshot: &Snapshot,
        base: Option<SnapshotId>,
    ) -> Result<Box<dyn ChangeSink + '_>> {
        let head = encode_rows_head(snapshot, base);
        if head.len() > FRAME_MAX_BYTES {
            let what = "the list of the snapshot's sources is too long for the shared catalog";
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (sender, frames) = mpsc::channel(FRAMES);
        let (client, path) = (Arc::clone(&self.client), format!("{}/rows", self.path()));
        let answer = client.runtime.spawn({
            let client = Arc::clone(&client);
            async move {
                let body = Body::wrap(FrameBody { frames });
                let request = client.request(Method::POST, &path).body(body);
                let answered = client.once(request, MIB).await;
                answered.map(|answer| answer.body).map_err(|fault| fault.into_error())
            }
        });
        let mut rows = RemoteRows { client, sender: Some(sender), answer: Some(answer), count: 0 };
        rows.send(head)?;
        Ok(Box::new(rows))
    }

    fn let_go(&self, gone: &[SnapshotId]) -> Result<u64> {
        let request = CatalogRequest::LetGo(gone.to_vec());
        self.read(&self.request(&request, REMOVAL)?, decode_count)
    }

    fn clear(&self) -> Result<u64> {
        self.read(&self.request(&CatalogRequest::Clear, REMOVAL)?, decode_count)
    }

    fn size(&self) -> Result<CatalogSize> {
        self.read(&self.request(&CatalogRequest::Size, ANSWER)?, decode_size)
    }

    fn ask(
        &self,
        question: &CatalogQuestion,
        all_hosts: bool,
        take: &mut dyn FnMut(CatalogAnswer) -> Result<()>,
    ) -> Result<()> {
        let request = CatalogRequest::Ask { question: question.clone(), all_hosts };
        let (client, path, body) = (&self.client, self.path(), request.encode());
        let cut = || {
            let what = "the answer of the shared catalog is cut";
            Error::new(Kind::Unanswered, what).at(&client.connection.address)
        };
        let slow = || Error::new(Kind::Unanswered, "the shared catalog did not answer in time");
        let send = client.request(Method::POST, &path).body(body);
        let begin = tokio_timeout(ANSWER, client.begin(send));
        let response = client.runtime.block_on(begin).map_err(|_| slow())?;
        let mut response = response.map_err(|fault| fault.into_error())?;
        let (mut frames, mut answer) = (FrameReader::default(), AnswerReader::default());
        loop {
            let piece = client.runtime.block_on(tokio_timeout(ANSWER, response.chunk()));
            let Some(piece) = piece.map_err(|_| slow())?.map_err(|_| cut())? else {
                return Err(cut());
            };
            frames.push(&piece);
            while let Some((kind, content)) = frames.next_frame()? {
                let frame = AnswerFrame::decode(client.connection.volume, kind, content)?;
                if answer.read(frame, take)? {
                    return Ok(());
                }
            }
        }
    }
}

async fn tokio_timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, ()> {
    tokio::time::timeout(limit, work).await.map_err(drop)
}

/// Collects the series of an answer, which come before its rows.
#[derive(Default)]
struct AnswerReader {
    series: Vec<SnapshotSeries>,
    count: usize,
}

impl AnswerReader {
    /// Takes a frame; returns whether the answer is complete.
    fn read(
        &mut self,
        frame: AnswerFrame,
        take: &mut dyn FnMut(CatalogAnswer) -> Result<()>,
    ) -> Result<bool> {
        let other = || Error::new(Kind::Corrupt, "the parts of an answer are in a wrong order");
        match frame {
            AnswerFrame::Series(series) if self.count == 0 => self.series.push(series),
            AnswerFrame::Holders(holders) => {
                self.series.last_mut().ok_or_else(other)?.snapshots.extend(holders);
            }
            AnswerFrame::Rows(rows) => {
                self.give_series(take)?;
                for row in rows {
                    if row.series >= self.count {
                        return Err(other());
                    }
                    take(CatalogAnswer::Row(row))?;
                }
            }
            AnswerFrame::Snapshot(snapshot) => take(CatalogAnswer::Snapshot(snapshot))?,
            AnswerFrame::End => {
                self.give_series(take)?;
                return Ok(true);
            }
            AnswerFrame::Series(_) => return Err(other()),
        }
        Ok(false)
    }

    fn give_series(&mut self, take: &mut dyn FnMut(CatalogAnswer) -> Result<()>) -> Result<()> {
        if self.series.is_empty() {
            return Ok(());
        }
        self.count = self.series.len();
        take(CatalogAnswer::Series(std::mem::take(&mut self.series)))
    }
}

/// The rows of a snapshot in transit.
struct RemoteRows {
    client: Arc<RemoteClient>,
    sender: Option<mpsc::Sender<Bytes>>,
    answer: Option<JoinHandle<Result<Vec<u8>>>>,
    count: u64,
}

impl RemoteRows {
    fn send(&mut self, frame: Vec<u8>) -> Result<()> {
        let Some(sender) = &self.sender else { return self.answer().map(drop) };
        let sent = tokio_timeout(TAKES, sender.send(frame.into()));
        match self.client.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            // The server answered before it had all rows, and says why.
            Ok(Err(_)) => match self.answer() {
                Ok(_) => Err(Error::new(Kind::Corrupt, "the server did not take all rows")),
                Err(error) => Err(error),
            },
            Err(()) => Err(Error::new(Kind::Unanswered, "the shared catalog takes no rows")),
        }
    }

    fn answer(&mut self) -> Result<Vec<u8>> {
        self.sender = None;
        let ended = || Error::new(Kind::Unanswered, "the shared catalog did not answer");
        let answer = self.answer.take().ok_or_else(ended)?;
        let answer = self.client.runtime.block_on(tokio_timeout(TAKES, answer));
        answer.map_err(|()| ended())?.map_err(|_| ended())?
    }
}

impl ChangeSink for RemoteRows {
    fn write(&mut self, changes: &[Change]) -> Result<()> {
        self.count += changes.len() as u64;
        encode_changes(changes).into_iter().try_for_each(|frame| self.send(frame))
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.send(encode_rows_end(self.count))?;
        decode_count(&self.answer()?)
    }
}

impl Drop for RemoteRows {
    fn drop(&mut self) {
        if let Some(answer) = &self.answer {
            answer.abort();
        }
    }
}

/// A body whose length is not known at its begin.
struct FrameBody {
    frames: mpsc::Receiver<Bytes>,
}

impl HttpBody for FrameBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.frames.poll_recv(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}
