//! Client certificates: with `--client-ca-file`, the listener requires a certificate of an
//! authority in that file. The file is read again periodically. The AdmissionConfiguration of the
//! API server names the client certificate of the API server (docs/reference/webhook.md).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;

/// Interval at which the file is read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(15);

struct LoadedAuthority {
    bytes: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Verifies client certificates with the authorities of a file.
pub struct ClientAuthority {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
    loaded: ArcSwap<LoadedAuthority>,
}

impl ClientAuthority {
    /// Reads the file. Fails if the file contains no certificate.
    pub fn load(file: PathBuf, provider: Arc<CryptoProvider>) -> io::Result<Self> {
        let loaded = ArcSwap::from_pointee(read(&file, &provider)?);
        Ok(Self {
            file,
            provider,
            loaded,
        })
    }

    /// Reads the file periodically. After an error, the previous authorities stay in use.
    pub(super) async fn follow(&self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            match read(&self.file, &self.provider) {
                Ok(loaded) if loaded.bytes == self.loaded.load().bytes => {}
                Ok(loaded) => {
                    self.loaded.store(Arc::new(loaded));
                    tracing::info!(file = %self.file.display(), "replaced the authorities of client certificates");
                }
                Err(error) => tracing::warn!(
                    error = crate::chain(&error),
                    "cannot read the authorities of client certificates; the previous authorities stay in use"
                ),
            }
        }
    }
}

fn read(file: &std::path::Path, provider: &Arc<CryptoProvider>) -> io::Result<LoadedAuthority> {
    let invalid = |error: &dyn fmt::Display| {
        let text = format!("--client-ca-file {}: {error}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let bytes = fs_err::read(file)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| invalid(&error))?;
        roots.add(certificate).map_err(|error| invalid(&error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let verifier = verifier.map_err(|error| invalid(&error))?;
    Ok(LoadedAuthority { bytes, verifier })
}

impl fmt::Debug for ClientAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthority")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for ClientAuthority {
    // An empty list of accepted authorities is sent to clients, so that each client presents its
    // certificate.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let loaded = self.loaded.load_full();
        loaded
            .verifier
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let loaded = self.loaded.load_full();
        loaded.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let loaded = self.loaded.load_full();
        loaded.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.loaded.load_full().verifier.supported_verify_schemes()
    }
}
