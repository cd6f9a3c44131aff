//! Takes secrets out of what helpers say and of the commands that are shown to people.
//!
//! Two ways at once: values that are known from the arguments disappear wherever they stand, and anything that
//! looks like a secret disappears up to the next white space. The second takes too much rather than too little:
//! a comma may be part of a password.

use agent_core::secret::{HIDDEN, hide, is_secret, is_secret_flag, login};

/// The secret values that stand in the arguments of one helper.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Learns the secrets in options, sources and arguments.
    pub(super) fn learn<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values = Vec::new();
        let mut before = "";
        for text in texts {
            let is_value = is_secret_flag(before) && !text.starts_with('-');
            values.extend(is_value.then(|| text.to_owned()));
            before = text;
            for (at, _) in text.match_indices('=') {
                let (Some(name), Some(value)) = (text.get(..at), text.get(at + 1..)) else { continue };
                if is_secret(name, value) {
                    values.push(value.to_owned());
                    // A helper that splits at commas shows the parts of a value that has some.
                    values.extend(value.split(',').map(str::to_owned));
                    values.extend(value.split_once('%').map(|(_, password)| password.to_owned()));
                }
            }
            if let Some((start, end)) = login(text) {
                values.extend(text.get(start..end).map(str::to_owned));
            }
        }
        Self::of(values)
    }

    /// As well as these values, whatever they are.
    pub(super) fn and(self, values: impl IntoIterator<Item = String>) -> Self {
        Self::of(self.0.into_iter().chain(values).collect())
    }

    fn of(mut values: Vec<String>) -> Self {
        // Shorter ones would tear up every text; after their option they disappear all the same.
        values.retain(|value| value.len() >= 3);
        // Longest first, so that a part does not break up the whole.
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self(values)
    }

    /// The text without secrets.
    pub(super) fn hide(&self, text: &str) -> String {
        let known = self.0.iter().fold(text.to_owned(), |text, value| text.replace(value, HIDDEN));
        hide(&known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_of_a_secret_option_is_left() {
        let options = ["username=u", "password=Zx9", "pass=Zx9", "password2=Zx9", "cred=/run/c"];
        let secrets = Secrets::learn(options.iter().copied().chain(["https://u:Zx9@dav.example/"]));
        let said = "mount error: username=u,password=Zx9,pass=Zx9,password2=Zx9,cred=/run/c https://u:Zx9@dav.example/ Zx9";
        let shown = secrets.hide(said);
        assert!(!shown.contains("Zx9"), "{shown}");
        assert!(shown.contains("dav.example"), "{shown}");
    }

    #[test]
    fn a_word_after_its_flag_is_known_too() {
        let secrets = Secrets::learn(["/x", "--password", "Zx9", "/mnt/v"]);
        assert_eq!(secrets.hide("cannot use Zx9 at /mnt/v"), "cannot use *** at /mnt/v");
    }

    #[test]
    fn a_value_that_is_known_to_be_secret_needs_no_name() {
        let secrets = Secrets::learn(["username=u"]).and(["Zx9".to_owned(), "ab".to_owned()]);
        assert_eq!(secrets.hide("sent Zx9, ab"), "sent ***, ab");
    }

    #[test]
    fn a_comma_in_a_password_leaks_nothing() {
        let secrets = Secrets::learn(["password=ab,Zx9 tail"]);
        let shown = secrets.hide("bad option \"Zx9 tail\", and password=ab,Zx9 tail");
        assert!(!shown.contains("Zx9") && !shown.contains("tail"), "{shown}");
    }
}
