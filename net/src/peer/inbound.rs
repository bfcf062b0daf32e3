//! A connection that a peer has dialled: it is greeted, judged, and read from.

use bytes::Bytes;
use tokio::io::AsyncWriteExt;

use super::Limits;
use super::frame::{self, Frame};
use super::hello::{self, Answer, Hello, Known, Me, Refusal};
use super::link::{GREETING, Surroundings, parsed, read_frame, read_more, within};
use crate::connection::Frames;
use crate::transport::{Stream, write_chunks};

/// A peer that was let in. Reading is all there is to do: this side sends on its own links.
pub struct Inbound {
    stream: Box<dyn Stream>,
    frames: Frames,
    around: Surroundings,
    limits: Limits,
    /// Who dialled.
    pub hello: Hello,
}

impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbound").field("hello", &self.hello).finish_non_exhaustive()
    }
}

/// Why nobody was let in.
#[derive(Debug)]
pub enum NotAccepted {
    /// The other side was told.
    Refused(Box<Hello>, Refusal),
    /// It did not even greet.
    Stranger(String),
}

impl Inbound {
    /// Reads the greeting and answers it. `known` says what is known of a node already.
    ///
    /// # Errors
    ///
    /// Why the connection was closed instead.
    pub async fn accept(
        mut stream: Box<dyn Stream>,
        around: Surroundings,
        limits: Limits,
        me: &Me,
        known: impl Fn(&Hello) -> Option<Known>,
    ) -> Result<Self, NotAccepted> {
        // Whoever has not greeted yet gets no room for more than a greeting.
        let mut frames = Frames::new(hello::BYTES_MAX);
        let greeting = async {
            let frame = read_frame(&mut stream, &mut frames).await?;
            let frame = frame.filter(|frame| frame.kind == GREETING);
            let frame = frame.ok_or_else(|| "there was no greeting".to_owned())?;
            Hello::decode(&frame.head).map_err(|error| error.to_string())
        };
        let greeting = within(&around, limits.connect_timeout, greeting).await;
        let greeting = greeting.unwrap_or_else(|| Err("it waited too long to greet".to_owned()));
        let hello = greeting.map_err(NotAccepted::Stranger)?;
        if frames.buffered() > 0 {
            return Err(NotAccepted::Stranger("it did not wait for an answer".to_owned()));
        }
        let judged = hello::judge(me, &hello, known(&hello).as_ref());
        let answer = match &judged {
            Ok(protocol) => Answer::Welcome { protocol: *protocol },
            Err(refusal) => Answer::Refused(refusal.clone()),
        };
        let writing = write_chunks(&mut stream, answered(&answer));
        match within(&around, limits.connect_timeout, writing).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(NotAccepted::Stranger(error.to_string())),
            None => return Err(NotAccepted::Stranger("it did not take the answer".to_owned())),
        }
        if let Err(refusal) = judged {
            // It has been told; whether it hears the end as well does not matter.
            let _ = stream.shutdown().await;
            return Err(NotAccepted::Refused(Box::new(hello), refusal));
        }
        let frames = Frames::new(limits.frame_bytes_max);
        Ok(Self { stream, frames, around, limits, hello })
    }

    /// The next frame, pulses included: whoever drives the connection hears from them that the
    /// peer lives. `None` once the peer has closed it.
    ///
    /// # Errors
    ///
    /// Why nothing more will come: silence, garbage, a broken connection.
    pub async fn next(&mut self) -> Result<Option<Frame>, String> {
        let silence = self.limits.silence_max;
        loop {
            if let Some(frame) = parsed(&mut self.frames)? {
                return Ok(Some(frame));
            }
            // A large frame may take its time on a slow link, as long as some of it comes.
            let more = within(&self.around, silence, read_more(&mut self.stream, &mut self.frames));
            let more = more.await;
            if !more.unwrap_or_else(|| Err(format!("the peer was silent for {silence:?}")))? {
                return Ok(None);
            }
        }
    }
}

fn answered(answer: &Answer) -> Vec<Bytes> {
    frame::to_chunks(GREETING, &answer.encode(), &[])
}
