//! Token server for clients of registries, over plain HTTP on loopback. The server supports the
//! token protocols of Docker and OAuth 2, and signs tokens with ES256.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::registry::{PASSWORD, TokenIssuer, USER};

/// Identity token (refresh token of OAuth 2) of [`USER`].
pub const IDENTITY_TOKEN: &str = "e2e-identity";
const ISSUER: &str = "e2e-tokens";
const SERVICE: &str = "e2e-registry";
const KEY_ID: &str = "e2e";
/// Maximum size of a request, in bytes. Requests of clients are smaller.
const LIMIT: usize = 64 << 10;

/// Running token server; it ends when dropped.
pub struct TokenServer {
    address: SocketAddr,
    keys: PathBuf,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    key: EcdsaKeyPair,
    rights: Mutex<Rights>,
    asked: Mutex<Vec<String>>,
}

/// Permissions of users.
#[derive(Debug, Clone, Default)]
struct Rights {
    /// Maximum permissions of [`USER`] (`pull`, `push`) by repository. `*` means all other
    /// repositories.
    of_user: BTreeMap<String, Vec<String>>,
    /// `true` if `POST` requests are supported.
    post: bool,
    /// Seconds that are added to the times in tokens.
    shift: i64,
}

impl TokenServer {
    /// Starts a token server. [`USER`] has all permissions; other users have permission to pull
    /// from repositories that begin with `public/`.
    pub(crate) async fn start(root: &Path) -> Result<Self> {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .context("cannot make the token server's key")?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref())
            .context("cannot read the token server's key")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        // The public key is an uncompressed point: the byte 4, then x and y with 32 bytes each.
        let point = key.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let keys = root
            .join("pki")
            .join(format!("tokens-{}.json", address.port()));
        let jwk = json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY_ID,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }] });
        fs_err::write(&keys, jwk.to_string())?;
        let all = vec!["pull".to_owned(), "push".to_owned()];
        let state = Arc::new(State {
            key,
            rights: Mutex::new(Rights {
                of_user: BTreeMap::from([("*".to_owned(), all)]),
                post: true,
                shift: 0,
            }),
            asked: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            keys,
            state,
            task,
        })
    }

    /// Returns the settings for registries that trust this server.
    pub fn issuer(&self) -> TokenIssuer {
        TokenIssuer {
            realm: format!("http://{}/token", self.address),
            issuer: ISSUER.to_owned(),
            service: SERVICE.to_owned(),
            keys: self.keys.clone(),
        }
    }

    /// Restricts [`USER`] to these actions in this repository.
    pub fn allow(&self, repository: &str, actions: &[&str]) {
        let actions = actions.iter().map(|&action| action.to_owned()).collect();
        self.rights().of_user.insert(repository.to_owned(), actions);
    }

    /// Enables the OAuth 2 token exchange by `POST`. By default, only `GET` of the docker protocol
    /// is supported.
    pub fn answer_post(&self, answer: bool) {
        self.rights().post = answer;
    }

    /// Shifts the server's clock by this number of seconds.
    pub fn shift(&self, seconds: i64) {
        self.rights().shift = seconds;
    }

    /// Returns the requested scopes, one line for each request: `METHOD USER SCOPE…`.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.state.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a token for these scopes.
    pub fn token(&self, scopes: &[&str]) -> Result<String> {
        self.state.token(USER, scopes)
    }

    fn rights(&self) -> std::sync::MutexGuard<'_, Rights> {
        let rights = self.state.rights.lock();
        rights.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            if let Err(error) = answer(stream, &state).await {
                eprintln!("e2e: the token server cannot answer: {error:#}");
            }
        });
    }
}

/// Handles one request for each connection.
async fn answer(stream: TcpStream, state: &State) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let before = head.len();
        stream.read_line(&mut head).await?;
        if head.len() > LIMIT || head.len() == before || head.ends_with("\r\n\r\n") {
            break;
        }
    }
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let length = header("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
        .min(LIMIT);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut line = head.split_whitespace();
    let (method, target) = (
        line.next().unwrap_or_default(),
        line.next().unwrap_or_default(),
    );
    let query = if method == "POST" {
        String::from_utf8_lossy(&body).into_owned()
    } else {
        target
            .split_once('?')
            .map_or_else(String::new, |(_, query)| query.to_owned())
    };
    let (status, answer) = state.judge(method, &query, header("authorization").as_deref())?;
    let answer = answer.to_string();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    stream.get_mut().write_all(text.as_bytes()).await?;
    Ok(stream.get_mut().shutdown().await?)
}

impl State {
    fn judge(
        &self,
        method: &str,
        query: &str,
        basic: Option<&str>,
    ) -> Result<(&'static str, Value)> {
        let fields: Vec<(String, String)> = reqwest::Url::parse(&format!("http://x/?{query}"))
            .context("a question that is no query")?
            .query_pairs()
            .into_owned()
            .collect();
        let field = |name: &str| {
            let found = fields.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let scopes: Vec<&str> = fields
            .iter()
            .filter(|(key, _)| key == "scope")
            .flat_map(|(_, value)| value.split(' '))
            .collect();
        let refused = |why: &str| json!({ "errors": [{ "code": "UNAUTHORIZED", "message": why }] });
        let user = if method == "POST" {
            if !self.rights().post {
                return Ok(("405 Method Not Allowed", refused("no exchange here")));
            }
            if field("refresh_token") != Some(IDENTITY_TOKEN) {
                return Ok(("401 Unauthorized", refused("unknown identity token")));
            }
            USER
        } else {
            match basic.and_then(|text| text.strip_prefix("Basic ")) {
                None => "",
                Some(text) => {
                    let known = [
                        format!("{USER}:{PASSWORD}"),
                        format!("<token>:{IDENTITY_TOKEN}"),
                    ];
                    if known.iter().all(|known| STANDARD.encode(known) != text) {
                        return Ok(("401 Unauthorized", refused("wrong user or password")));
                    }
                    USER
                }
            }
        };
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(format!("{method} {user} {}", scopes.join(" ")));
        let token = self.token(user, &scopes)?;
        Ok((
            "200 OK",
            json!({ "token": token, "access_token": token, "expires_in": 300 }),
        ))
    }

    fn token(&self, user: &str, scopes: &[&str]) -> Result<String> {
        let rights = self.rights();
        let access: Vec<Value> = scopes
            .iter()
            .filter_map(|scope| {
                let mut parts = scope.splitn(3, ':');
                let (kind, name, wanted) = (parts.next()?, parts.next()?, parts.next()?);
                let public = vec!["pull".to_owned()];
                let may = match user {
                    USER => rights.of_user.get(name).or_else(|| rights.of_user.get("*")),
                    _ => name.starts_with("public/").then_some(&public),
                };
                let granted: Vec<_> = wanted
                    .split(',')
                    .filter(|action| may.is_some_and(|may| may.iter().any(|one| one == action)))
                    .collect();
                Some(json!({ "type": kind, "name": name, "actions": granted }))
            })
            .collect();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the clock is before 1970")?
            .as_secs();
        let now = i64::try_from(now).context("the clock is far off")? + rights.shift;
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let content = format!(
            "{}.{}",
            encode(&json!({ "typ": "JWT", "alg": "ES256", "kid": KEY_ID })),
            encode(&json!({
                "iss": ISSUER, "sub": user, "aud": SERVICE, "jti": format!("{now}-{}", rand::random::<u64>()),
                "iat": now, "nbf": now - 10, "exp": now + 300, "access": access,
            })),
        );
        let signature = self
            .key
            .sign(&SystemRandom::new(), content.as_bytes())
            .context("cannot sign a token")?;
        Ok(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn rights(&self) -> std::sync::MutexGuard<'_, Rights> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
