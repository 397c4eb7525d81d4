//! Registry clients: one pool of connections, and for each pull secret the logins in it.
//! Not here: what is asked of a registry.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bundle_oci::registry::{Client, ClientOptions, Deadlines, Logins, Mirrors, RegistryError};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// The entry of a Secret of type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// How long the transfer of one bundle may take.
const TRANSFER: Duration = Duration::from_secs(300);
/// Bytes a second that a registry has to bring. A transfer holds one of few places.
const SLOWEST: u64 = 32 << 10;
/// Pull secrets whose tokens are remembered; beyond that all are forgotten, which costs requests and nothing else.
const REMEMBERED: usize = 64;

/// Why a pull secret cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields hold")]
pub enum PullSecretError {
    #[error("cannot read pull secret {namespace}/{name}")]
    Read {
        namespace: String,
        name: String,
        source: kube::Error,
    },
    #[error("pull secret {namespace}/{name} does not exist")]
    Missing { namespace: String, name: String },
    #[error("pull secret {namespace}/{name} has no entry `{DOCKER_CONFIG}`")]
    Empty { namespace: String, name: String },
}

/// The clients of this process.
pub struct Registries {
    anonymous: Client,
    by_secret: Mutex<HashMap<String, Known>>,
}

/// A client and the bytes that it was made from: a changed Secret makes another.
struct Known {
    config: Vec<u8>,
    client: Client,
}

impl Registries {
    /// Trusts the system's authorities, and those in `authorities` (PEM); reads from the mirrors that `mirrors` (registries.conf) names.
    pub fn new(authorities: Option<PathBuf>, mirrors: &[PathBuf]) -> Result<Self, RegistryError> {
        let anonymous = Client::new(ClientOptions {
            mirrors: Mirrors::read(mirrors)?,
            ca_files: authorities.into_iter().collect(),
            user_agent: concat!("bundle-webhook/", env!("CARGO_PKG_VERSION")).to_owned(),
            deadlines: Deadlines {
                transfer: TRANSFER,
                slowest: SLOWEST,
                ..Deadlines::default()
            },
            ..ClientOptions::default()
        })?;
        Ok(Self {
            anonymous,
            by_secret: Mutex::default(),
        })
    }

    /// In nobody's name.
    pub fn anonymous(&self) -> &Client {
        &self.anonymous
    }

    /// In the name that the Secret `name` gives.
    pub async fn with_secret(
        &self,
        secrets: &Api<Secret>,
        name: &str,
    ) -> Result<Client, PullSecretError> {
        let namespace = || secrets.namespace().unwrap_or_default().to_owned();
        let found = secrets
            .get_opt(name)
            .await
            .map_err(|source| PullSecretError::Read {
                namespace: namespace(),
                name: name.to_owned(),
                source,
            })?
            .ok_or_else(|| PullSecretError::Missing {
                namespace: namespace(),
                name: name.to_owned(),
            })?;
        let config = found
            .data
            .and_then(|mut data| data.remove(DOCKER_CONFIG))
            .ok_or_else(|| PullSecretError::Empty {
                namespace: namespace(),
                name: name.to_owned(),
            })?
            .0;
        Ok(self.known(name, config))
    }

    fn known(&self, name: &str, config: Vec<u8>) -> Client {
        let mut by_secret = self
            .by_secret
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_secret.get(name)
            && known.config == config
        {
            return known.client.clone();
        }
        if by_secret.len() >= REMEMBERED {
            by_secret.clear();
        }
        let mut logins = Logins::anonymous();
        logins.secrets.push(config.clone());
        let client = self.anonymous.with_logins(logins);
        by_secret.insert(
            name.to_owned(),
            Known {
                config,
                client: client.clone(),
            },
        );
        client
    }
}
