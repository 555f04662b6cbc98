//! A server in trouble: it stands between the product and Argo CD's API, and answers as a test says.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It leads to Argo CD.
    Pass,
    /// Its request gets this status; after so many of them all is well again.
    Refuse(u16, usize),
    /// It is closed without an answer.
    Close,
    /// It is held without an answer.
    Hang,
}

/// The server. Dropping it ends it.
pub struct Proxy {
    pub address: String,
    mode: Arc<Mutex<Mode>>,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// In front of `server` (host:port).
    pub async fn start(server: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let refused = Arc::new(AtomicUsize::new(0));
        let (modes, count) = (Arc::clone(&mode), Arc::clone(&refused));
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mode = next(&modes);
                if mode != Mode::Pass {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                match mode {
                    Mode::Pass => {
                        let server = server.clone();
                        tokio::spawn(async move {
                            if let Ok(mut beyond) = TcpStream::connect(server).await {
                                // Either side may end it; that is no error.
                                let _ = copy_bidirectional(&mut stream, &mut beyond).await;
                            }
                        });
                    }
                    Mode::Refuse(status, _) => {
                        tokio::spawn(refuse(stream, status));
                    }
                    Mode::Close => drop(stream),
                    Mode::Hang => held.push(stream),
                }
            }
        });
        Ok(Self {
            address,
            mode,
            refused,
            task,
        })
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// How many connections did not get through, since the last question.
    pub fn refused(&self) -> usize {
        self.refused.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn next(modes: &Mutex<Mode>) -> Mode {
    let mut mode = modes.lock().unwrap_or_else(PoisonError::into_inner);
    let present = *mode;
    if let Mode::Refuse(status, left) = present {
        *mode = match left.checked_sub(1) {
            None | Some(0) => Mode::Pass,
            Some(left) => Mode::Refuse(status, left),
        };
    }
    present
}

/// Reads the head of a request and answers it.
async fn refuse(mut stream: TcpStream, status: u16) {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let body = r#"{"error":"in trouble","code":8,"message":"in trouble"}"#;
    let answer = format!(
        "HTTP/1.1 {status} Trouble\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // Whoever asked may be gone.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
