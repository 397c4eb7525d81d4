//! Listening sockets. Their connections have small buffers in the kernel. The kernel counts these
//! buffers as memory of the container. By default, a buffer grows to several MiB while the client
//! or the pod does not read.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Size of the buffer for received bytes. The kernel doubles this size for its own data.
const RECEIVE_BUFFER: u32 = 32 << 10;
/// Size of the buffer for bytes that the client has not acknowledged. The kernel doubles this size.
const SEND_BUFFER: u32 = 32 << 10;
/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Binds a listener. On a host without IPv6, the unspecified address means all IPv4 addresses.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = bind_exactly(address);
    if bound.is_err() && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        return bind_exactly(v4).or(bound);
    }
    bound
}

fn bind_exactly(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit the buffer sizes of the listener.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWrite, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// Time after which an unfinished write counts as blocked.
    const BLOCKED_AFTER: Duration = Duration::from_millis(500);

    /// Returns the number of bytes that can be written while the reader does not read.
    async fn unread(stream: &mut (impl AsyncWrite + Unpin)) -> usize {
        let mut sum = 0;
        while let Ok(written) = timeout(BLOCKED_AFTER, stream.write(&[0; 4096])).await {
            sum += written.unwrap();
        }
        sum
    }

    #[tokio::test]
    async fn kernel_stores_few_bytes_of_a_connection_without_a_reader() {
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_send_buffer_size(4 << 10).unwrap();
        client.set_recv_buffer_size(4 << 10).unwrap();
        let mut client = client.connect(address).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        let sent = unread(&mut client).await;
        assert!(sent < 128 << 10, "{sent} bytes received");
        let sent = unread(&mut accepted).await;
        assert!(sent < 128 << 10, "{sent} bytes sent");
    }
}
