//! cosign's encrypted key file: PEM that contains JSON with NaCl secretbox. scrypt derives the key
//! from the password.

use aws_lc_rs::rand;
use crypto_secretbox::{KeyInit as _, XSalsa20Poly1305, aead::Aead as _};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::text::Password;
use crate::dsse;

/// Accepted scrypt costs: `(N, log2 N)`, with r = 8 and p = 1. Existing files use these costs.
/// Other costs are rejected, because a hostile file could require any amount of memory and time.
const COSTS: &[(u64, u8)] = &[(32_768, 15), (65_536, 16), (131_072, 17)];
/// Scrypt cost of new files. cosign uses the same cost.
const COST: (u64, u8) = (65_536, 16);

#[derive(Serialize, Deserialize)]
struct File {
    kdf: Kdf,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct Kdf {
    name: String,
    params: Params,
    salt: String,
}

#[derive(Serialize, Deserialize)]
struct Params {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Serialize, Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// Reason why an encrypted key file was not decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecryptError {
    /// The text is not an encrypted key file. Contains the reason.
    Unreadable(&'static str),
    /// The password is wrong.
    WrongPassword,
}

/// Decrypts a key file.
pub(super) fn open(json: &[u8], password: &Password) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    use DecryptError::Unreadable;
    let file: File = bundle_core::json::read(json)
        .map_err(|_| Unreadable("the encrypted part is not the JSON of a cosign key"))?;
    if file.kdf.name != "scrypt" || file.cipher.name != "nacl/secretbox" {
        return Err(Unreadable(
            "its encryption is not scrypt with nacl/secretbox",
        ));
    }
    let params = &file.kdf.params;
    let Some((_, log_n)) = COSTS
        .iter()
        .find(|(n, _)| *n == params.n && params.r == 8 && params.p == 1)
    else {
        return Err(Unreadable("its scrypt parameters are not supported"));
    };
    let salt = dsse::decode(&file.kdf.salt).ok_or(Unreadable("its salt is not base64"))?;
    let nonce: [u8; 24] = dsse::decode(&file.cipher.nonce)
        .and_then(|nonce| nonce.try_into().ok())
        .ok_or(Unreadable("its nonce is not 24 bytes"))?;
    let sealed =
        dsse::decode(&file.ciphertext).ok_or(Unreadable("its ciphertext is not base64"))?;
    let cipher = stretch(password, &salt, *log_n).ok_or(Unreadable("its salt is invalid"))?;
    cipher
        .decrypt((&nonce).into(), sealed.as_slice())
        .map(Zeroizing::new)
        .map_err(|_| DecryptError::WrongPassword)
}

/// Returns the JSON of a key file for `secret`; `None` if the system's random generator fails.
pub(super) fn seal(secret: &[u8], password: &Password) -> Option<Vec<u8>> {
    let mut salt = [0; 32];
    let mut nonce = [0; 24];
    rand::fill(&mut salt).ok()?;
    rand::fill(&mut nonce).ok()?;
    let sealed = stretch(password, &salt, COST.1)?
        .encrypt((&nonce).into(), secret)
        .ok()?;
    serde_json::to_vec(&File {
        kdf: Kdf {
            name: "scrypt".to_owned(),
            params: Params {
                n: COST.0,
                r: 8,
                p: 1,
            },
            salt: dsse::encode(&salt),
        },
        cipher: Cipher {
            name: "nacl/secretbox".to_owned(),
            nonce: dsse::encode(&nonce),
        },
        ciphertext: dsse::encode(&sealed),
    })
    .ok()
}

fn stretch(password: &Password, salt: &[u8], log_n: u8) -> Option<XSalsa20Poly1305> {
    let params = scrypt::Params::new(log_n, 8, 1).ok()?;
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(password.as_bytes(), salt, &params, key.as_mut_slice()).ok()?;
    XSalsa20Poly1305::new_from_slice(key.as_slice()).ok()
}
