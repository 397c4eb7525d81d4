//! A registry of an attacker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A server that returns the attacker's response to each request, and keeps connections open.
#[derive(Clone)]
pub(super) struct HostileServer {
    /// Returns the response to a request with this head.
    answer: Arc<dyn Fn(&str) -> String + Send + Sync>,
    answered: Arc<AtomicUsize>,
}

impl HostileServer {
    pub(super) fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(answer),
            answered: Arc::default(),
        }
    }

    /// Listens on a new port, and returns the port.
    pub(super) async fn listen(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(connection));
            }
        });
        port
    }

    async fn serve(self, mut connection: TcpStream) {
        let (mut head, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(read) = connection.read(&mut piece).await {
            if read == 0 {
                return;
            }
            head.extend_from_slice(&piece[..read]);
            if head.ends_with(b"\r\n\r\n") {
                let answer = (self.answer)(&String::from_utf8_lossy(&head));
                head.clear();
                if connection.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}
