//! The options between the parentheses of an attribute: `#[runtime::main(backend = "uring", crate = "path")]`.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Lit, LitInt, LitStr, Meta, Path, Token};

/// What the user asked for, as far as it could be understood.
#[derive(Default)]
pub(crate) struct Options {
    /// The variant of `Backend` to ask for. Its span is that of the literal.
    pub(crate) backend: Option<Ident>,
    pub(crate) workers: Option<Workers>,
    runtime: Option<Path>,
}

/// How many workers the user asked for.
pub(crate) enum Workers {
    PerCore,
    Exactly(LitInt),
}

impl Options {
    /// Reads `args` and appends what is wrong with them to `errors`.
    ///
    /// An option with an error counts as absent, so that the rest of the function can still be expanded and checked.
    pub(crate) fn parse(args: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut options = Self::default();
        let list = match Punctuated::<Meta, Token![,]>::parse_terminated.parse2(args) {
            Ok(list) => list,
            Err(error) => {
                errors.push(Error::new(
                    error.span(),
                    "options are written `name = value`, separated by commas",
                ));
                return options;
            }
        };

        let mut seen: Vec<Known> = Vec::new();
        for meta in &list {
            match Known::find(meta.path()) {
                Ok(option) if seen.contains(&option) => {
                    errors.push(Error::new_spanned(
                        meta.path(),
                        format!("the option {option} is given twice"),
                    ));
                }
                Ok(option) => {
                    seen.push(option);
                    options
                        .set(option, meta)
                        .unwrap_or_else(|error| errors.push(error));
                }
                Err(error) => errors.push(error),
            }
        }
        options
    }

    /// The path of the `runtime` crate in the user's program.
    pub(crate) fn runtime(&self) -> Path {
        self.runtime
            .clone()
            .unwrap_or_else(|| syn::parse_quote!(::runtime))
    }

    fn set(&mut self, option: Known, meta: &Meta) -> Result<(), Error> {
        let value = option.value(meta)?;
        match option {
            Known::Backend => self.backend = Some(backend(option.text(value)?)?),
            Known::Workers => self.workers = Some(workers(value)?),
            Known::Crate => self.runtime = Some(path(option.text(value)?)?),
        }
        Ok(())
    }
}

/// The name of an option.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Backend,
    Workers,
    Crate,
}

impl Known {
    fn find(path: &Path) -> Result<Self, Error> {
        if path.is_ident("backend") {
            Ok(Self::Backend)
        } else if path.is_ident("workers") {
            Ok(Self::Workers)
        } else if path.is_ident("crate") {
            Ok(Self::Crate)
        } else {
            let name = path.to_token_stream().to_string().replace(' ', "");
            let [first, second, third] = [Self::Backend, Self::Workers, Self::Crate];
            let known = format!("the options are {first}, {second} and {third}");
            Err(Error::new_spanned(
                path,
                format!("unknown option `{name}`; {known}"),
            ))
        }
    }

    /// What stands to the right of the equals sign.
    fn value(self, meta: &Meta) -> Result<&Expr, Error> {
        match meta {
            Meta::NameValue(pair) => Ok(&pair.value),
            _ => Err(Error::new_spanned(
                meta,
                format!(
                    "the option {self} needs a value, as in `{}`",
                    self.example()
                ),
            )),
        }
    }

    /// The value as a string.
    fn text(self, value: &Expr) -> Result<&LitStr, Error> {
        match value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(literal),
                ..
            }) => Ok(literal),
            other => Err(Error::new_spanned(
                other,
                format!(
                    "the option {self} takes a string literal, as in `{}`",
                    self.example()
                ),
            )),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Backend => r#"backend = "uring""#,
            Self::Workers => "workers = 4",
            Self::Crate => r#"crate = "::runtime""#,
        }
    }
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Backend => "`backend`",
            Self::Workers => "`workers`",
            Self::Crate => "`crate`",
        })
    }
}

/// The variant of `Backend` that goes by the name in `literal`.
///
/// The compiler resolves the variant rather than the name at run time, so a wrong name cannot reach a running program.
fn backend(literal: &LitStr) -> Result<Ident, Error> {
    let name = literal.value();
    match BACKENDS.iter().find(|(known, _)| *known == name) {
        Some((_, variant)) => Ok(Ident::new(variant, literal.span())),
        None => {
            let known = BACKENDS.map(|(known, _)| format!("{known:?}")).join(", ");
            Err(Error::new(
                literal.span(),
                format!("unknown backend {name:?}; the values are {known}"),
            ))
        }
    }
}

/// A number that is not zero, or the name of the number of CPUs.
fn workers(value: &Expr) -> Result<Workers, Error> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(literal),
            ..
        }) if literal.value() == PER_CORE => Ok(Workers::PerCore),
        Expr::Lit(ExprLit {
            lit: Lit::Int(literal),
            ..
        }) if literal.base10_parse().is_ok_and(|count: usize| count > 0) => {
            Ok(Workers::Exactly(literal.clone()))
        }
        other => Err(Error::new_spanned(
            other,
            format!(
                "the option `workers` takes {PER_CORE:?} or a number from 1 on, as in `workers = 4`"
            ),
        )),
    }
}

fn path(literal: &LitStr) -> Result<Path, Error> {
    literal.parse_with(Path::parse_mod_style).map_err(|_| {
        let value = literal.value();
        Error::new(
            literal.span(),
            format!("the option `crate` takes a path such as \"::runtime\", not {value:?}"),
        )
    })
}

/// One worker for each CPU that the program may use.
const PER_CORE: &str = "per-core";

/// Names as `Backend` reads them from a string, and the variants they stand for.
const BACKENDS: [(&str, &str); 3] = [("auto", "Auto"), ("uring", "Uring"), ("epoll", "Epoll")];

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn no_arguments_ask_for_nothing() {
        let options = accept(quote!());
        assert!(options.backend.is_none());
        assert!(options.workers.is_none());
        assert_eq!(tokens(&options.runtime()), ":: runtime");
    }

    #[test]
    fn every_backend_has_a_variant() {
        for (name, variant) in BACKENDS {
            assert_eq!(accept(quote!(backend = #name)).backend.unwrap(), variant);
        }
    }

    #[test]
    fn a_path_replaces_the_default_crate() {
        for (text, expected) in [
            ("ring", "ring"),
            ("::ring", ":: ring"),
            ("crate::a::ring", "crate :: a :: ring"),
        ] {
            assert_eq!(tokens(&accept(quote!(crate = #text)).runtime()), expected);
        }
    }

    #[test]
    fn options_combine_in_any_order_and_may_end_in_a_comma() {
        for args in [
            quote!(backend = "epoll", crate = "ring"),
            quote!(crate = "ring", backend = "epoll",),
        ] {
            let options = accept(args);
            assert_eq!(tokens(&options.runtime()), "ring");
            assert_eq!(options.backend.unwrap(), "Epoll");
        }
    }

    #[test]
    fn an_unknown_backend_is_told_the_values() {
        let expected = r#"unknown backend "URING"; the values are "auto", "uring", "epoll""#;
        assert_eq!(refuse(quote!(backend = "URING")), [expected]);
    }

    #[test]
    fn an_unknown_option_is_told_the_options() {
        let expected = "unknown option `threads`; the options are `backend`, `workers` and `crate`";
        assert_eq!(refuse(quote!(threads = 4)), [expected]);
        assert_eq!(refuse(quote!(threads)), [expected]);
        assert_eq!(refuse(quote!(threads(4))), [expected]);
        assert!(
            refuse(quote!(runtime::backend = "uring"))[0]
                .starts_with("unknown option `runtime::backend`")
        );
    }

    #[test]
    fn the_second_of_two_equal_options_is_refused() {
        assert_eq!(
            refuse(quote!(backend = "uring", backend = "epoll")),
            ["the option `backend` is given twice"]
        );
        assert_eq!(
            refuse(quote!(crate = "a", crate = "a")),
            ["the option `crate` is given twice"]
        );
    }

    #[test]
    fn a_value_has_to_be_a_string_literal() {
        let expected = r#"the option `backend` takes a string literal, as in `backend = "uring"`"#;
        for value in [
            quote!(Backend::Uring),
            quote!(1),
            quote!(b"uring"),
            quote!(concat!("ur", "ing")),
        ] {
            assert_eq!(refuse(quote!(backend = #value)), [expected]);
        }
        let expected = r#"the option `crate` takes a string literal, as in `crate = "::runtime"`"#;
        assert_eq!(refuse(quote!(crate = ring)), [expected]);
    }

    #[test]
    fn workers_are_a_number_or_one_for_each_core() {
        assert!(matches!(
            accept(quote!(workers = "per-core")).workers,
            Some(Workers::PerCore)
        ));
        for (args, digits) in [(quote!(workers = 4), "4"), (quote!(workers = 0x10), "16")] {
            match accept(args).workers {
                Some(Workers::Exactly(count)) => assert_eq!(count.base10_digits(), digits),
                _ => panic!("not a number"),
            }
        }
        let expected =
            "the option `workers` takes \"per-core\" or a number from 1 on, as in `workers = 4`";
        for args in [
            quote!(workers = 0),
            quote!(workers = -1),
            quote!(workers = 1.5),
            quote!(workers = "4"),
            quote!(workers = "per-cpu"),
            quote!(workers = N),
            quote!(workers = 99999999999999999999999),
        ] {
            assert_eq!(refuse(args), [expected]);
        }
        assert_eq!(
            refuse(quote!(workers)),
            ["the option `workers` needs a value, as in `workers = 4`"]
        );
    }

    #[test]
    fn a_value_has_to_be_there() {
        let expected = r#"the option `backend` needs a value, as in `backend = "uring"`"#;
        assert_eq!(refuse(quote!(backend)), [expected]);
        assert_eq!(refuse(quote!(backend("uring"))), [expected]);
    }

    #[test]
    fn a_crate_has_to_be_a_path() {
        for text in ["", "a b", "a::", "a<b>", "1"] {
            let expected =
                format!("the option `crate` takes a path such as \"::runtime\", not {text:?}");
            assert_eq!(refuse(quote!(crate = #text)), [expected]);
        }
    }

    #[test]
    fn what_is_no_list_of_options_is_told_the_form() {
        let expected = "options are written `name = value`, separated by commas";
        for args in [
            quote!("uring"),
            quote!(=),
            quote!(backend = ),
            quote!(backend = "uring" crate = "a"),
        ] {
            assert_eq!(refuse(args), [expected]);
        }
    }

    #[test]
    fn all_errors_are_reported_and_the_rest_is_kept() {
        let mut errors = Vec::new();
        let options = Options::parse(
            quote!(flavor = "local", backend = "kqueue", crate = "ring"),
            &mut errors,
        );
        assert_eq!(errors.len(), 2);
        assert!(options.backend.is_none());
        assert_eq!(tokens(&options.runtime()), "ring");
    }

    fn accept(args: TokenStream) -> Options {
        let mut errors = Vec::new();
        let options = Options::parse(args, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        options
    }

    fn refuse(args: TokenStream) -> Vec<String> {
        let mut errors = Vec::new();
        Options::parse(args, &mut errors);
        errors.iter().map(Error::to_string).collect()
    }

    fn tokens(path: &Path) -> String {
        path.to_token_stream().to_string()
    }
}
