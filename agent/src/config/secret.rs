//! Secrets have no place in a configuration that is printed, logged and passed on command lines. Here they
//! are recognised by name, and no text that holds one is ever shown.

/// Names whose value is a secret. Names of files that hold one (`credentials`, `secretfile`, `passwd_file`) are
/// welcome.
const NAMES: [&str; 8] = ["pass", "pw", "pwd", "password2", "secretkey", "accesskey", "apikey", "api_key"];

/// … and endings, since every tool has a prefix of its own.
const ENDINGS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secret_key",
    "secret_access_key",
    "access_key",
    "account_key",
    "token",
];

/// The name of the first option in a text that carries a secret: `password=…`, `user=name%password` of CIFS,
/// or `scheme://user:password@host`.
pub(super) fn name_in(text: &str) -> Option<String> {
    if has_userinfo(text) {
        return Some("user:password@host".to_owned());
    }
    text.match_indices('=').find_map(|(at, _)| {
        let before = text.get(..at)?.trim_end();
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let name = start.map_or(before, |start| before.get(start..).unwrap_or_default());
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let value = text.get(at + 1..)?.trim_start();
        is_secret(name, value).then(|| name.to_owned())
    })
}

/// The name of a flag whose secret is the word after it: `--password SECRET`.
pub(super) fn flag_before(word: &str, next: &str) -> Option<String> {
    let name = word.strip_prefix('-')?.trim_start_matches('-');
    // Another flag, or what the agent itself puts there.
    let is_value = !next.starts_with(['-', '{']);
    (is_value && !name.contains('=') && is_secret(name, next)).then(|| name.to_owned())
}

/// Names and passwords of logins are not longer: what is asked of every word of a long text must not look at the
/// rest of it each time.
const LONGEST_LOGIN: usize = 256;

/// The value ends at the first comma, if it has one.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if value.is_empty() || value.starts_with(',') {
        return false;
    }
    // mount.cifs takes "user=name%password" apart itself.
    let is_login =
        || value.bytes().take(LONGEST_LOGIN).take_while(|byte| *byte != b',').any(|byte| byte == b'%');
    if matches!(name.as_str(), "user" | "username") && is_login() {
        return true;
    }
    let name = name.replace('-', "_");
    NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a line that could not be parsed may hold a secret. The names alone are reason enough, since the
/// quotes and commas around them cannot be trusted.
pub(super) fn is_suspicious(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let words = ["pass", "secret", "token", "apikey", "api_key", "pw="];
    has_userinfo(&line)
        || words.iter().any(|word| line.contains(word))
        || line.contains("user") && line.contains('%')
}

/// Whether a URL in the text names a password before the host.
fn has_userinfo(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ', ',']).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_also_hidden() {
        for name in NAMES.into_iter().chain(ENDINGS) {
            assert!(is_secret(name, "Zx9"), "{name}");
            assert!(agent_core::secret::is_secret(name, "Zx9"), "{name}");
        }
        for name in ["credentials", "secretfile", "passwd_file", "username", "vers", "cred", "key"] {
            assert!(!is_secret(name, "x"), "{name}");
        }
    }

    #[test]
    fn secrets_are_found_by_name() {
        for text in [
            "password=Zx9",
            "vers=3.0,Pass=Zx9,seal",
            "password2=Zx9",
            "secret=AQB",
            "--password=Zx9",
            "secret-access-key=Zx9",
            "username=u%Zx9",
            "https://u:Zx9@dav.example/",
            "password = Zx9",
            "/password=Zx9",
            "sftp_password=Zx9",
            "a=b,SECRET=x",
            "--token=x",
        ] {
            assert!(name_in(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_word_after_a_flag_that_asks_for_a_secret_is_one() {
        for (flag, next) in
            [("--password", "Zx9"), ("--client-secret", "x"), ("-pw", "x"), ("--user", "u%Zx9")]
        {
            assert!(flag_before(flag, next).is_some(), "{flag} {next}");
        }
        for (word, next) in [
            ("--password", "--verbose"),
            ("--password", "{target}"),
            ("--password-file", "/etc/x"),
            ("--user", "ann"),
            ("password", "x"),
            ("--x=token", "y"),
            ("-o", "rw"),
        ] {
            assert_eq!(flag_before(word, next), None, "{word} {next}");
        }
    }

    #[test]
    fn references_and_names_are_no_secrets() {
        for text in [
            "credentials=/etc/cifs",
            "secretfile=/etc/ceph/key",
            "passwd_file=/etc/s3",
            "username=u",
            "filer1:/export/a@b",
            "ssh://user@host:22/path",
            "password=",
            "user@host:/dir",
            "password_stdin",
        ] {
            assert_eq!(name_in(text), None, "{text}");
        }
    }
}
