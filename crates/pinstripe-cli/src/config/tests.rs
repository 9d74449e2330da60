use super::*;

fn parse(text: &str) -> Result<Config> {
    Config::parse(Path::new("c.toml"), text, Some(Path::new("/home/me")))
}

#[track_caller]
fn refused(text: &str) -> String {
    let error = parse(text).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    format!("{error} | {}", error.advice_text().unwrap_or("-"))
}

#[test]
fn the_documented_example_says_what_it_says() {
    let page = include_str!("../../../../doc/config.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let config = parse(example).unwrap();
    assert_eq!(config.default_store.as_deref(), Some("home"));
    assert_eq!(config.stores["home"].members[0], Path::new("/mnt/a/store"));
    assert!(config.stores["home"].members.len() > 1);
    let work = &config.backups["documents"];
    assert_eq!(work.paths[0], Path::new("/home/me/Documents"));
    assert!(work.exclude_caches && !config.retention.is_empty());
    let policy = config.retention.policy();
    assert_eq!((policy.daily, policy.within_seconds), (Some(7), Some(2 * 24 * 3600)));
    assert_eq!(policy.weekly_within_seconds, Some(60 * 24 * 3600));
    assert_eq!(config.retention.group_by, Some("host,paths".parse().unwrap()));
    // Every key that is known stands in the example, so none is left undocumented.
    let keys = "default-store member password-file password-command key-file store paths exclude \
                exclude-file iexclude ignore-file exclude-larger-than exclude-older-than \
                exclude-caches exclude-if-present one-file-system tags host keep-last \
                keep-hourly keep-daily keep-weekly keep-monthly keep-yearly keep-within keep-tag \
                keep-within-hourly keep-within-daily keep-within-weekly keep-within-monthly \
                keep-within-yearly group-by endpoint currency put get list delete gb-out gb-month";
    for key in keys.split_whitespace() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn prices_are_found_by_the_endpoint_and_have_one_currency() {
    let text = "[price.near]\nendpoint = 'https://S3.near.example/'\ncurrency = 'EUR'\nput = 0.005\n\
                [price.all]\ncurrency = 'EUR'\ngb-month = 1\n";
    let config = parse(text).unwrap();
    let near = config.prices_of("https://s3.near.example").unwrap();
    assert_eq!((near.put, near.gb_month), (Money(5_000_000), Money(0)));
    assert_eq!(config.prices_of("https://far").unwrap().gb_month, Money(1_000_000_000));
    assert!(parse("").unwrap().prices_of("https://far").is_none());
    let two = refused("[price.a]\ncurrency='EUR'\n[price.b]\nput=1\n");
    assert!(
        two.contains("two currencies") && two.contains("the default of a price table"),
        "{two}"
    );
    let two = refused("[price.a]\nput=1\n[price.b]\nget=1\ncurrency='EUR'\n");
    assert!(two.contains(":5") && two.contains("'EUR'"), "{two}");
    for (wrong, says) in [
        ("put = -1", "a number that is not negative"),
        ("put = 'cheap'", "a number that is not negative"),
        ("put = nan", "a number that is not negative"),
        ("put = 1e12", "not a possible price"),
        ("endpoint = 'near'", "a URL"),
        ("puts = 1", "the most similar known key is 'put'"),
    ] {
        let said = refused(&format!("[price.a]\n{wrong}\n"));
        assert!(said.contains("c.toml:2") && said.contains(says), "{said}");
    }
}

#[test]
fn what_is_unknown_is_refused_with_its_line_and_the_nearest_key() {
    let text = "[backup.x]\npaths = ['/a']\nexlude = ['b']\n";
    assert_eq!(
        refused(text),
        "c.toml:3: the key 'exlude' in [backup.x] is unknown | the most similar known key is \
         'exclude'"
    );
    assert!(refused("\n[stores.a]\nmember = '/a'\n").starts_with("c.toml:2: the key 'stores'"));
    let text = "[store.a]\nmember = '/a'\nfrobnicate = 1\n";
    assert!(refused(text).contains("known keys are: member, password-file"));
}

#[test]
fn wrong_types_are_refused_with_their_line() {
    let cases = [
        ("[store.a]\nmember = 5", "c.toml:2", "a string or a list of strings", "a number"),
        ("[store.a]\nmember = []", "c.toml:2", "a string or a list of strings", "a list"),
        ("[store.a]\nmember = ['/a', 5]", "c.toml:2", "a list of strings", "a number"),
        ("[store.a]\nmember = ''", "c.toml:2", "a string that is not empty", "an empty string"),
        ("[backup.a]\npaths = '/x'", "c.toml:2", "a list of strings", "a string"),
        ("[backup.a]\npaths = ['/x',\n 7]", "c.toml:3", "a list of strings", "a number"),
        ("[backup.a]\npaths = ['/x']\nexclude-caches = 'yes'", ":3", "true or false", "a string"),
        ("[retention]\nkeep-last = -1", "c.toml:2", "a whole number", "a number"),
        ("[retention]\nkeep-last = 1.5", "c.toml:2", "a whole number", "with a fraction"),
        ("retention = 3", "c.toml:1", "a table [retention]", "a number"),
        ("[store]\na = 3", "c.toml:2", "a table [store.NAME]", "a number"),
        ("store = 3", "c.toml:1", "tables [store.NAME]", "a number"),
    ];
    for (text, place, expected, found) in cases {
        let told = refused(text);
        for part in [place, expected, found] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cases = [
        ("[store.a]\nmember = 'rel'", "not an absolute path"),
        ("[store.a]\n", "needs the key 'member'"),
        ("[store.a]\nmember='/a'\nkey-file='/k'\npassword-file='/p'", "may be given"),
        ("[backup.a]\nstore='nowhere'\npaths=['/a']", "the config file has no store 'nowhere'"),
        ("[backup.a]\npaths=[]", "needs the key 'paths'"),
        ("[backup.a]\npaths=['/a']\ntags=['a b']", "one word"),
        ("[backup.a]\npaths=['/a']\nexclude=['[x']", "exclude pattern"),
        ("[backup.a]\npaths=['/a']\niexclude=['[x']", "exclude pattern"),
        ("[backup.a]\npaths=['/a']\nignore-file=['a/b']", "not the name of a file"),
        ("[backup.a]\npaths=['/a']\nexclude-larger-than='big'", "not a size"),
        ("[backup.a]\npaths=['/a']\nexclude-older-than='old'", "not a time span"),
        ("[retention]\nkeep-last=1\nkeep-within='3'", "c.toml:3: '3' is not a time span"),
        ("[retention]\nkeep-tag=['a b']", "one word"),
        ("[retention]\n\nkeep-within-daily='3'", "c.toml:3: '3' is not a time span"),
        ("[retention]\ngroup-by='hosd'", "c.toml:2: snapshots cannot be grouped by 'hosd'"),
        ("[retention]\ngroup-by=['host']", "of the wrong type"),
        ("default-store = 'a'", "the config file has no store 'a'"),
        ("[store.a\n", "not valid TOML"),
        ("[store.a]\nmember='/a'\nmember='/b'", "not valid TOML"),
        ("[store.'a/b']\nmember='/a'", "not contain /"),
    ];
    for (text, part) in cases {
        assert!(refused(text).contains(part), "{part}: {}", refused(text));
    }
    let error = Config::parse(Path::new("c"), "[store.a]\nmember = '~/x'", None).unwrap_err();
    assert!(error.to_string().contains("HOME is not set"), "{error}");
}

#[test]
fn rules_for_an_age_and_groups_are_read() {
    let day = 24 * 3600;
    for (key, of) in [
        ("hourly", (|it| it.hourly_within_seconds) as fn(&pinstripe_stripe::Policy) -> Option<u64>),
        ("daily", |it| it.daily_within_seconds),
        ("weekly", |it| it.weekly_within_seconds),
        ("monthly", |it| it.monthly_within_seconds),
        ("yearly", |it| it.yearly_within_seconds),
    ] {
        let rules = parse(&format!("[retention]\nkeep-within-{key}='2d'")).unwrap().retention;
        assert_eq!(of(&rules.policy()), Some(2 * day), "{key}");
        assert!(rules.has_rule());
    }
    let rules = parse("[retention]\ngroup-by='none'").unwrap().retention;
    assert_eq!(rules.group_by, Some(pinstripe_stripe::GroupBy::NOTHING));
    assert!(!rules.has_rule() && !rules.is_empty(), "groups alone keep nothing");
}

#[test]
fn a_store_may_have_rules_of_its_own() {
    let text = "[store.a]\nmember='/a'\n[store.a.retention]\nkeep-last=2\ngroup-by='host'\n\
                [store.b]\nmember='/b'\n[retention]\nkeep-last=7\n";
    let config = parse(text).unwrap();
    let rules = config.rules_of(&[Path::new("/other"), Path::new("/a")]).unwrap();
    assert_eq!((rules.keep_last, config.retention.keep_last), (Some(2), Some(7)));
    assert_eq!(config.rules_of(&[Path::new("/b")]), None);
    let said = refused("[store.a]\nmember='/a'\n[store.a.retention]\nkeep-lst=2\n");
    assert!(said.contains("c.toml:4: the key 'keep-lst' in [store.a.retention]"), "{said}");
    // Shown as it was written.
    let shown = toml::to_string(&config).unwrap();
    assert_eq!(parse(&shown).unwrap(), config, "{shown}");
}

#[test]
fn names_that_are_not_there_bring_the_nearest() {
    let config = parse("[store.home]\nmember='~/s'\n[backup.docs]\npaths=['~']").unwrap();
    assert_eq!(config.stores["home"].members, [Path::new("/home/me/s")]);
    assert_eq!(config.backups["docs"].paths, [Path::new("/home/me")]);
    let advice = |error: Error| error.advice_text().unwrap().to_owned();
    assert_eq!(advice(config.store("hmoe").unwrap_err()), "the most similar name is 'home'");
    assert_eq!(
        advice(config.backup("photographs").unwrap_err()),
        "the config file has these names: docs"
    );
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn no_text_makes_it_panic() {
    let good = "default-store='a'\n[store.a]\nmember='/a'\n[backup.b]\npaths=['/x','~/y']\n\
                tags=['t']\n[retention]\nkeep-last=3\nkeep-within='30d'\n";
    parse(good).unwrap();
    for end in 0..good.len() {
        let _ = parse(&good[..end]);
        for instead in ["\0", "'", "[", "]", "=", "\n", "é", "{", "0x", "."] {
            let _ = parse(&format!("{}{instead}{}", &good[..end], &good[end + 1..]));
        }
    }
}
