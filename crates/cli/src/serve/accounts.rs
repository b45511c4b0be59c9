//! Whether other people have accounts on this machine: they can reach the loopback address, too.

/// User numbers of people, as in `login.defs` of most distributions.
const PEOPLE: std::ops::Range<u32> = 1000..65_534;

/// The name of another account that somebody can log in to, if there is one.
pub(super) fn other(own: u32) -> Option<String> {
    // Users of a directory service are not listed there; --token is for them.
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    other_in(&text, own)
}

fn other_in(passwd: &str, own: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        let [name, _, user, _, _, _, shell] = parts[..] else { return None };
        let user: u32 = user.parse().ok()?;
        let closed = shell.ends_with("/nologin") || shell.ends_with("/false");
        (PEOPLE.contains(&user) && user != own && !closed).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accounts_of_people_count() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\
                      www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n\
                      ann:x:1000:1000:Ann:/home/ann:/bin/bash\n\
                      robot:x:1001:1001::/srv:/usr/sbin/nologin\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n\
                      # not a line\n";
        assert_eq!(other_in(passwd, 0).as_deref(), Some("ann"));
        assert_eq!(other_in(passwd, 1000), None);
        assert_eq!(other_in("", 1000), None);
    }
}
