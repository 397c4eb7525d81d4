//! Reads trusted certificate authorities and client certificates: from PEM files, folders of PEM
//! files, and folders by host as in docker's `certs.d`.

use std::io;
use std::path::{Path, PathBuf};

use reqwest::{Certificate, Identity};

use crate::limits::CREDENTIAL_BYTES;
use crate::registry::bounded_file::read_bounded;
use crate::registry::http_error::HttpError;
use crate::registry::{ClientOptions, RegistryError, RegistryErrorReason};

/// Certificates for all registries, and the folders with certificates by host.
pub(in crate::registry) struct TlsSettings {
    pub(in crate::registry) authorities: Vec<Certificate>,
    pub(in crate::registry) identity: Option<Identity>,
    folders: Vec<PathBuf>,
}

/// Certificates for one registry.
pub(in crate::registry) struct HostCertificates {
    pub(in crate::registry) authorities: Vec<Certificate>,
    pub(in crate::registry) identity: Option<Identity>,
}

impl TlsSettings {
    pub(in crate::registry) fn read(options: &ClientOptions) -> Result<Self, RegistryError> {
        let mut trust = Self {
            authorities: Vec::new(),
            identity: None,
            folders: Vec::new(),
        };
        for path in &options.ca_files {
            trust.add(path).map_err(|why| RegistryError {
                doing: "read the certificate authorities in",
                subject: path.display().to_string(),
                reason: RegistryErrorReason::Settings(why),
            })?;
        }
        trust.folders.extend(options.host_folders.iter().cloned());
        if let Some((certificate, key)) = &options.client_certificate {
            let identity = identity(certificate, key).map_err(|why| RegistryError {
                doing: "read the client certificate",
                subject: certificate.display().to_string(),
                reason: RegistryErrorReason::Settings(why),
            })?;
            trust.identity = Some(identity);
        }
        Ok(trust)
    }

    fn add(&mut self, path: &Path) -> Result<(), String> {
        if !path.is_dir() {
            self.authorities.extend(authorities(path)?);
            return Ok(());
        }
        let (files, folders) = entries(path).map_err(|error| error.to_string())?;
        let before = self.authorities.len();
        for file in files.iter().filter(|file| {
            ["crt", "pem"]
                .iter()
                .any(|end| file.extension().is_some_and(|found| found == *end))
        }) {
            self.authorities
                .extend(authorities(file).map_err(|why| format!("`{}`: {why}", file.display()))?);
        }
        if folders.is_empty() && self.authorities.len() == before {
            return Err(
                "the folder contains neither certificates (*.crt, *.pem) nor a folder for a registry"
                    .to_owned(),
            );
        }
        if !folders.is_empty() {
            self.folders.push(path.to_owned());
        }
        Ok(())
    }

    /// Returns the certificates for `host` (with its port) from the first folder that has
    /// certificates for this host.
    pub(in crate::registry) fn of(
        &self,
        host: &str,
    ) -> Result<Option<HostCertificates>, RegistryErrorReason> {
        // Hosts come from references and redirects and must not contain path separators.
        if host.contains(['/', '\\']) || host.starts_with('.') {
            return Ok(None);
        }
        for folder in self.folders.iter().map(|folder| folder.join(host)) {
            match entries(&folder) {
                Ok((files, _)) => {
                    return host_certificates(&files).map(Some).map_err(|why| {
                        RegistryErrorReason::Settings(format!(
                            "the certificates in `{}` are invalid: {why}",
                            folder.display()
                        ))
                    });
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) => {}
                Err(error) => return Err(RegistryErrorReason::Settings(error.to_string())),
            }
        }
        Ok(None)
    }
}

/// Returns the files and the folders in a folder, both sorted by name.
fn entries(folder: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let mut paths = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    // Ignores hidden names. A mounted Secret has hidden folders next to the links to its files.
    paths.retain(|path| {
        !path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    });
    Ok(paths.into_iter().partition(|path| !path.is_dir()))
}

/// Reads the files of a host by the rules of docker: `*.crt` are certificate authorities,
/// `NAME.cert` and `NAME.key` are a client certificate.
fn host_certificates(files: &[PathBuf]) -> Result<HostCertificates, String> {
    let mut certificates = HostCertificates {
        authorities: Vec::new(),
        identity: None,
    };
    let is = |file: &Path, end: &str| file.extension().is_some_and(|found| found == end);
    for file in files {
        let named = |why: String| format!("`{}`: {why}", file.display());
        if is(file, "crt") {
            certificates
                .authorities
                .extend(authorities(file).map_err(named)?);
        } else if is(file, "cert") {
            let key = file.with_extension("key");
            if !files.contains(&key) {
                return Err(named(
                    "its key, a file with the same name and extension .key, is missing".to_owned(),
                ));
            }
            certificates.identity = Some(identity(file, &key).map_err(named)?);
        } else if is(file, "key") && !files.contains(&file.with_extension("cert")) {
            return Err(named(
                "its certificate, a file with the same name and extension .cert, is missing (.crt is for authorities)".to_owned(),
            ));
        }
    }
    Ok(certificates)
}

fn authorities(file: &Path) -> Result<Vec<Certificate>, String> {
    let pem = read_bounded(file, CREDENTIAL_BYTES).map_err(|error| error.to_string())?;
    let found =
        Certificate::from_pem_bundle(&pem).map_err(|error| HttpError::from(error).to_string())?;
    if found.is_empty() {
        return Err("it contains no PEM certificate".to_owned());
    }
    Ok(found)
}

fn identity(certificate: &Path, key: &Path) -> Result<Identity, String> {
    let mut pem = read_bounded(certificate, CREDENTIAL_BYTES).map_err(|error| error.to_string())?;
    let secret = read_bounded(key, CREDENTIAL_BYTES).map_err(|error| error.to_string())?;
    let holds = |pem: &[u8], label: &str| {
        let line = format!("-----BEGIN {label}");
        pem.windows(line.len()).any(|part| part == line.as_bytes())
    };
    if !holds(&pem, "CERTIFICATE-----") {
        return Err("it contains no PEM certificate".to_owned());
    }
    let name = key.display();
    if holds(&secret, "ENCRYPTED PRIVATE KEY") {
        return Err(format!(
            "the key `{name}` is encrypted; pass an unencrypted key"
        ));
    }
    if ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"]
        .iter()
        .all(|label| !holds(&secret, label))
    {
        return Err(format!("the key `{name}` contains no PEM private key"));
    }
    pem.push(b'\n');
    pem.extend(secret);
    Identity::from_pem(&pem).map_err(|error| HttpError::from(error).to_string())
}
