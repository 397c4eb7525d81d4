//! Credentials for a registry.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// User name and password.
    Password {
        /// User name.
        user: String,
        /// Password.
        password: String,
    },
    /// Identity token, which is exchanged for access tokens at the token service.
    IdentityToken(String),
    /// Token that the registry itself accepts.
    Bearer(String),
}

impl Login {
    /// Returns the size of the texts of the login, in bytes.
    pub(in crate::registry) fn bytes(&self) -> usize {
        match self {
            Self::Password { user, password } => user.len() + password.len(),
            Self::IdentityToken(token) | Self::Bearer(token) => token.len(),
        }
    }
}

impl fmt::Debug for Login {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.who())
    }
}

impl Login {
    pub(in crate::registry) fn who(&self) -> String {
        match self {
            Self::Password { user, .. } => format!("as {user}"),
            Self::IdentityToken(_) => "with an identity token".to_owned(),
            Self::Bearer(_) => "with a token".to_owned(),
        }
    }

    /// Returns the value of the `Authorization` header for basic authentication.
    pub(in crate::registry) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { user, password } => Some(format!(
                "Basic {}",
                STANDARD.encode(format!("{user}:{password}"))
            )),
            Self::IdentityToken(_) | Self::Bearer(_) => None,
        }
    }
}
