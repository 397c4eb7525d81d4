//! Requests by plain HTTP to programs on this machine.

use std::sync::OnceLock;

use anyhow::{Context, Result};

/// Returns the client for plain HTTP. The client trusts no certificate authority, so that it does
/// not load the authorities of the system. The client does not reuse connections, so that each
/// async runtime can use the client.
pub fn client() -> Result<&'static reqwest::Client> {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    crate::use_own_tls_provider();
    let client = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .pool_max_idle_per_host(0)
        .build()
        .context("cannot make a client for plain HTTP")?;
    Ok(CLIENT.get_or_init(|| client))
}

/// Returns status and body of the response to a GET.
pub async fn get(url: &str) -> Result<(u16, String)> {
    let response = client()?.get(url).send().await?;
    let status = response.status().as_u16();
    Ok((status, response.text().await?))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::runtime::Runtime;

    use super::*;

    /// Answers one request with status 503.
    async fn answer_once(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let response = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
        stream.write_all(response).await.unwrap();
    }

    #[test]
    fn returns_status_and_body_in_each_async_runtime() {
        for _ in 0..2 {
            let response = Runtime::new().unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}/readyz", listener.local_addr().unwrap());
                tokio::join!(get(&url), answer_once(listener)).0
            });
            assert_eq!(response.unwrap(), (503, "busy".to_owned()));
        }
    }
}
