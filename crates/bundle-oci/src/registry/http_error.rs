//! Errors of the HTTP client, with their causes.

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use rustls::{CertificateError, InconsistentKeys};

/// Error of the HTTP client, of TLS or of the operating system. Clones share the error.
#[derive(Debug, Clone)]
pub struct HttpError(Arc<reqwest::Error>);

impl HttpError {
    /// Returns the first cause that is an error of type `T`.
    pub(super) fn find<T: Error + 'static>(&self) -> Option<&T> {
        let mut next: Option<&(dyn Error + 'static)> = Some(&*self.0);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<T>() {
                return Some(found);
            }
            // `Error::source` of an I/O error skips the inner error: it returns the source of the
            // inner error.
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref)
                .map(|inner| inner as &(dyn Error + 'static));
            next = inner.or_else(|| error.source());
        }
        None
    }

    /// Returns `true` if no connection was established.
    pub(super) fn is_connect(&self) -> bool {
        self.0.is_connect()
    }

    /// Returns `true` if a deadline of the HTTP client was exceeded.
    pub(super) fn is_timeout(&self) -> bool {
        self.0.is_timeout()
    }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        // The URL is removed, because its query can contain a signature that permits access.
        Self(Arc::new(error.without_url()))
    }
}

impl Error for HttpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl fmt::Display for HttpError {
    /// Writes the innermost cause. This is the error of the operating system, or the reason why a
    /// certificate is rejected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = self.find().and_then(certificate_reason) {
            return f.write_str(reason);
        }
        let mut last: &dyn Error = &*self.0;
        while let Some(next) = last.source() {
            last = next;
        }
        fmt::Display::fmt(last, f)
    }
}

/// Returns a short text for the most common certificate errors. The texts of rustls are long, or
/// contain names of types.
fn certificate_reason(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => Some("it is signed by an unknown authority"),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some("it is not valid for this host")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Some("it is not valid yet")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Some("it has expired")
            }
            CertificateError::BadEncoding => Some("it is not a certificate"),
            CertificateError::Other(other) => match other.0.downcast_ref()? {
                webpki::Error::CaUsedAsEndEntity => {
                    Some("it is the certificate of an authority, not of a server")
                }
                _ => None,
            },
            _ => None,
        },
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Some("the key does not match the certificate")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::OtherError;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn common_errors_of_certificates_have_words() {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(1));
        let host = ServerName::try_from("registry.example.com").unwrap();
        let errors = [
            (
                CertificateError::UnknownIssuer,
                "it is signed by an unknown authority",
            ),
            // rustls reports the variants with context, such as `NotValidForNameContext`.
            (
                CertificateError::NotValidForNameContext {
                    expected: host,
                    presented: Vec::new(),
                },
                "it is not valid for this host",
            ),
            (
                CertificateError::NotValidYetContext {
                    time,
                    not_before: time,
                },
                "it is not valid yet",
            ),
            (
                CertificateError::ExpiredContext {
                    time,
                    not_after: time,
                },
                "it has expired",
            ),
            (CertificateError::BadEncoding, "it is not a certificate"),
            (
                CertificateError::Other(OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity))),
                "it is the certificate of an authority, not of a server",
            ),
        ];
        for (error, expected) in errors {
            assert_eq!(certificate_reason(&error.into()), Some(expected));
        }
        assert_eq!(
            certificate_reason(&InconsistentKeys::KeyMismatch.into()),
            Some("the key does not match the certificate")
        );
    }

    #[test]
    fn other_errors_keep_the_text_of_their_library() {
        assert_eq!(certificate_reason(&CertificateError::Revoked.into()), None);
        assert_eq!(certificate_reason(&rustls::Error::DecryptError), None);
    }

    #[tokio::test]
    async fn has_the_error_of_the_operating_system_and_no_url() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        // Fails if another test has already installed the provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .build();
        let url = format!("http://{address}/blob?signature=secret");
        let error: HttpError = client.unwrap().get(url).send().await.unwrap_err().into();
        let refused: &io::Error = error.find().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), refused.to_string());
        let (mut texts, mut next) = (Vec::new(), Some(&error as &dyn Error));
        while let Some(error) = next {
            texts.push(format!("{error} {error:?}"));
            next = error.source();
        }
        assert!(texts.len() > 1);
        assert!(!texts.concat().contains("secret"), "{texts:?}");
    }
}
