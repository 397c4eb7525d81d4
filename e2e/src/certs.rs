//! Certificates of a test cluster: its certificate authority, serving certificates for loopback,
//! client certificates with user and groups.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// First address of the Service range: the Service of the API server.
const FIRST_SERVICE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));

/// Object identifier of organizationName (X.520), as a second type for rcgen. A certificate with
/// two groups needs two values of organizationName, and rcgen keeps one value per type.
const SECOND_ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// Certificate authority. Its key is only in memory.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    certificate: PathBuf,
    addresses: Vec<IpAddr>,
}

/// Certificate and private key in PEM files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Path of the certificate.
    pub certificate: PathBuf,
    /// Path of the private key (PKCS#8).
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority and writes its certificate to `folder/NAME.crt`.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, new_key()?)
            .context("cannot make a certificate authority")?;
        let certificate = folder.join(format!("{name}.crt"));
        fs_err::write(&certificate, issuer.pem())?;
        Ok(Self {
            issuer,
            certificate,
            addresses: vec![Ipv4Addr::LOCALHOST.into(), FIRST_SERVICE_IP],
        })
    }

    /// Adds an address to serving certificates that are issued later.
    pub(crate) fn add_address(&mut self, address: IpAddr) {
        self.addresses.push(address);
    }

    /// Returns the certificate of the authority.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Issues a serving certificate for loopback and the names of the API server inside the
    /// cluster, as `folder/NAME.{crt,key}`.
    pub fn server(&self, folder: &Path, name: &str) -> Result<Identity> {
        let names = [
            "localhost",
            // Name of a registry behind a proxy in scenarios.
            "registry.example.com",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ]
        .map(ToOwned::to_owned);
        let mut params =
            CertificateParams::new(names).context("cannot name a serving certificate")?;
        let addresses = self.addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names.extend(addresses);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, folder, name)
    }

    /// Issues a client certificate for `user` in `groups` (at most two), as
    /// `folder/NAME.{crt,key}`.
    pub fn client(
        &self,
        folder: &Path,
        name: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        let types = [
            DnType::OrganizationName,
            DnType::CustomDnType(SECOND_ORGANIZATION.to_vec()),
        ];
        if groups.len() > types.len() {
            bail!(
                "a client certificate of this harness holds at most two groups, not {}",
                groups.len()
            );
        }
        for (kind, group) in types.into_iter().zip(groups) {
            params.distinguished_name.push(kind, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, folder, name)
    }

    fn issue(&self, mut params: CertificateParams, folder: &Path, name: &str) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot issue the certificate of {name}"))?;
        write(folder, name, &certificate.pem(), &key)
    }
}

/// Creates the key pair that signs ServiceAccount tokens. In the result, `key` is the private key,
/// and `certificate` is the public key instead of a certificate.
pub fn token_keys(folder: &Path) -> Result<Identity> {
    let key = new_key()?;
    write(folder, "service-accounts", &key.public_key_pem(), &key)
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().context("cannot generate a key")
}

fn write(folder: &Path, name: &str, public: &str, key: &KeyPair) -> Result<Identity> {
    let identity = Identity {
        certificate: folder.join(format!("{name}.crt")),
        key: folder.join(format!("{name}.key")),
    };
    fs_err::write(&identity.certificate, public)?;
    fs_err::write(&identity.key, key.serialize_pem())?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_more_groups_than_a_certificate_can_hold() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca").unwrap();
        authority
            .client(folder.path(), "two", "ana", &["a", "b"])
            .unwrap();
        let error = authority
            .client(folder.path(), "three", "ana", &["a", "b", "c"])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "a client certificate of this harness holds at most two groups, not 3"
        );
    }
}
