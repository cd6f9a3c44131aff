//! Takes out of text whatever looks like a secret, before anybody outside sees it: the only place that does.
//!
//! The configuration refuses secrets, but sources and options of mounts that somebody else made can carry them
//! (`https://user:password@host`, `secret=…` of ceph), and helpers repeat what they were given. When in doubt
//! this hides too much rather than too little: nothing is mounted from its result.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// Names of options that carry a secret, by their end: `pass`, `access_key`, `client-secret`.
const NAMES: [&str; 10] =
    ["password", "password2", "passwd", "passphrase", "pass", "pwd", "pw", "secret", "token", "key"];

/// The text without the passwords of logins and without the values of secret options. A value may hold commas:
/// it ends with the word.
#[must_use]
pub fn hide(text: &str) -> String {
    let mut is_value = false;
    let each = text.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        // Several spaces may stand between a flag and its value.
        if bare.is_empty() {
            return word.to_owned();
        }
        let was_flag = core::mem::replace(&mut is_value, is_secret_flag(bare));
        if !was_flag || bare.starts_with('-') {
            return hide_word(word);
        }
        format!("{HIDDEN}{}", word.get(bare.len()..).unwrap_or_default())
    });
    each.collect()
}

/// Whether the word after this one is a secret: `--password`. Quotes and commas of a list may stand around it.
#[must_use]
pub fn is_secret_flag(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', ',', '[', '(']);
    word.starts_with('-') && !word.contains('=') && is_secret(word, "")
}

/// Names and passwords of logins are not longer: what is asked of every word of a long text must not look at the
/// rest of it each time.
const LONGEST_LOGIN: usize = 256;
/// URLs of one word that are looked at one by one.
const MOST_URLS: usize = 16;

/// Whether `name=value` carries a secret. Lists, quotes and other words may stand before the name.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    let name =
        name.rsplit([',', '"', '\'', '(', '?', '&', '=']).next().unwrap_or(name).trim_start_matches('-');
    let name = name.to_ascii_lowercase();
    // mount.cifs takes `user=name%password` apart.
    let is_login = matches!(name.as_str(), "user" | "username")
        && value.bytes().take(LONGEST_LOGIN).any(|byte| byte == b'%');
    is_login || NAMES.iter().any(|secret| name.ends_with(secret))
}

fn hide_word(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some((start, end)) = login(&word) {
        word.replace_range(start..end, HIDDEN);
    }
    // Each of several URLs may have its own, and one may stand before them. From the last on, so that what is found
    // stays where it was.
    let starts: Vec<usize> = word.match_indices("://").map(|(at, _)| at).take(MOST_URLS).collect();
    let mut until = word.len();
    for from in starts.into_iter().rev().chain([0]) {
        if let Some((start, end)) = word.get(from..until).and_then(login) {
            word.replace_range(from + start..from + end, HIDDEN);
        }
        until = from;
    }
    for (at, _) in word.match_indices('=') {
        let (Some(name), Some(value)) = (word.get(..at), word.get(at + 1..)) else { continue };
        if is_secret(name, value) {
            let end = value.trim_end_matches(|c: char| c.is_whitespace() || "\"')".contains(c)).len();
            let tail = value.get(end..).unwrap_or_default();
            return format!("{name}={HIDDEN}{tail}");
        }
    }
    word
}

/// Where the password stands in `scheme://user:password@host` or `user:password@host`. It may hold any
/// character, so everything up to the last `@` belongs to it, unless it reads like a port and a path.
#[must_use]
pub fn login(word: &str) -> Option<(usize, usize)> {
    let at = word.rfind('@')?;
    let after_scheme = word.find("://").map(|scheme| scheme + 3).filter(|start| *start < at);
    let start = after_scheme.unwrap_or(0);
    let colon = start + word.get(start..at)?.find(':')?;
    let (user, password) = (word.get(start..colon)?, word.get(colon + 1..at)?);
    let is_path = match after_scheme {
        Some(_) => user.contains('/') || is_port_and_path(password),
        // `host:/path@snapshot` is no login.
        None => password.starts_with('/'),
    };
    (!is_path && !password.is_empty()).then_some((colon + 1, at))
}

fn is_port_and_path(text: &str) -> bool {
    text.split_once('/').is_some_and(|(port, _)| {
        !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::hide;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        for text in [
            "https://u:Zx9@dav.example/",
            "could not mount https://u:Zx9/b@dav.example/ here",
            "username=u,password=Zx9,pass=Zx9",
            "username=u%Zx9",
            "-o PASSWORD2=a,Zx9",
            "admin@cluster.fs=/ secret=Zx9",
            "http://h/?token=Zx9",
            "http://h/?a=b&secret_access_key=Zx9",
            "tried -o rw,PASSWORD=Zx9,rest",
            "aws_secret_access_key=Zx9",
            "--client-secret=Zx9",
            "(token=Zx9)",
            "ann:Zx9@files:/x",
            "s3://id:Zx9@bucket",
            "ann:Zx9@files,https://u:Zx9@host/",
            "ann:Zx9@password=@a,https://u:Zx9@host/",
            "https://a/x,https://u:Zx9@b/",
            "https://u:Zx9@b/,https://a/x",
            "https://u:Zx9@b/,https://v:Zx9@a/,https://c/",
            "tried /x --password Zx9 /mnt/v",
            "[\"/x\", \"--token\",  \"Zx9\"]",
        ] {
            assert!(!hide(text).contains("Zx9"), "{}", hide(text));
        }
        assert_eq!(hide("https://u:Zx9@dav.example/ failed"), "https://u:***@dav.example/ failed");
        assert_eq!(hide("/x --password Zx9 /mnt/v"), "/x --password *** /mnt/v");
        assert_eq!(hide("/x --password --verbose /mnt/v"), "/x --password --verbose /mnt/v");
    }

    #[test]
    fn a_word_of_many_assignments_costs_no_more_than_its_length() {
        // With a look at the whole word for each of them this would be some 10⁹ steps.
        assert_eq!(hide(&"user=".repeat(1 << 13)).len(), 5 << 13);
        assert!(hide(&"a=".repeat(1 << 13)).ends_with("a="));
        assert_eq!(hide("a=b=user=u%Zx9"), "a=b=user=***");
    }

    #[test]
    fn ordinary_words_stay_as_they_are() {
        for text in [
            "filer1:/export/models",
            "mount.nfs: access denied by filer1:/export@daily",
            "vers=4.2,addr=192.0.2.1,user=ann",
            "ann@files:",
            "ann@files: x",
            "//server/share",
            "http://host:8080/a@b",
            "/dev/mapper/vg0-a",
            "cred=/run/c",
            "s3://bucket/key@v",
            "[2001:db8::1]:/x",
        ] {
            assert_eq!(hide(text), text);
        }
    }
}
