//! Reading the head of a request of HTTP, within bounds. What follows it is not read.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::Answer;

/// Bytes of a request's first line and headers.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) method: String,
    /// Without what follows a question mark, and with its `%XX` made characters.
    pub(super) path: String,
}

/// `None` if the connection ended before anything was asked.
///
/// # Errors
///
/// The answer to what is no request.
pub(super) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<RequestLine>, Answer> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !ends(&head) {
        if head.len() > HEAD_BYTES_MAX {
            return Err(Answer::text(431, "the request's head is too long"));
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(bytes) => head.extend_from_slice(&chunk[..bytes]),
        }
    }
    parse(&head).map(Some)
}

/// An empty line ends the head; some clients send no carriage returns.
fn ends(head: &[u8]) -> bool {
    let has = |end: &[u8]| head.windows(end.len()).any(|bytes| bytes == end);
    has(b"\r\n\r\n") || has(b"\n\n")
}

fn parse(head: &[u8]) -> Result<RequestLine, Answer> {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default().trim_end();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let well =
        version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
    match (method, target) {
        (Some(method), Some(target)) if well && target.starts_with('/') => {
            let path = target.split('?').next().unwrap_or_default();
            let path = unescaped(path).ok_or_else(|| Answer::text(400, "the path is no text"))?;
            Ok(RequestLine { method: method.to_owned(), path })
        }
        _ => Err(Answer::text(400, "this is no request of HTTP/1.1")),
    }
}

/// `%XX` made a byte; `None` where that makes no text.
fn unescaped(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &[u8]) -> Result<Option<RequestLine>, u16> {
        let mut stream = text;
        read_request(&mut stream).await.map_err(|answer| answer.status)
    }

    #[tokio::test]
    async fn heads_are_read_within_bounds() {
        let asked = |method: &str, path: &str| {
            Ok(Some(RequestLine { method: method.to_owned(), path: path.to_owned() }))
        };
        assert_eq!(read(b"GET /lag?x=1 HTTP/1.1\r\nHost: h\r\n\r\n").await, asked("GET", "/lag"));
        assert_eq!(read(b"GET /lag/a%2Fb HTTP/1.0\n\n").await, asked("GET", "/lag/a/b"));
        assert_eq!(read(b"HEAD / HTTP/1.1\r\n\r\nand more").await, asked("HEAD", "/"));
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost: h\r\n").await, Ok(None), "it ended half-way");
        for wrong in [
            &b"GET / HTTP/2\r\n\r\n"[..],
            b"GET http://h/ HTTP/1.1\r\n\r\n",
            b"GET / / HTTP/1.1\r\n\r\n",
            b"GET /%zz HTTP/1.1\r\n\r\n",
            b"GET /%ff HTTP/1.1\r\n\r\n",
            b"\r\n\r\n",
            b"\xff\xff\n\n",
            b"\x16\x03\x01\x02\n\n",
        ] {
            assert_eq!(read(wrong).await, Err(400), "{wrong:?}");
        }
        let long = [&b"GET / HTTP/1.1\r\nA: "[..], &vec![b'a'; HEAD_BYTES_MAX + 2000]].concat();
        assert_eq!(read(&long).await, Err(431));
    }
}
