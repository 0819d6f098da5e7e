//! From the function that the user wrote to the function that the compiler gets.
//!
//! The body is put into an inner `async fn` with the user's return type, not into an `async` block: there the compiler
//! knows what `?`, `return` and the last expression have to be, and says it in the words and at the place the user
//! expects. The body is passed on as it came, token by token. So the compiler, and not this crate, reports errors in
//! it, and it may use syntax that `syn` has yet to learn.

use std::fmt;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, FnArg, LitInt, LitStr, Signature, Token, Visibility, token};

use crate::options::{Options, Workers};

/// Which of the two attributes is expanded.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Entry {
    Main,
    Test,
}

/// Expands the attribute `entry` with the arguments `args` on `item`.
///
/// Errors are part of the result, all at once. Beside them stands whatever spares the user follow-up errors.
pub(crate) fn expand(entry: Entry, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Vec::new();
    let options = Options::parse(args, &mut errors);
    let function = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Function(function)) => *function,
        Ok(Item::Other(span)) => {
            errors.push(Error::new(span, format!("{entry} is for functions only")));
            return report(&errors, &item);
        }
        Err(error) => {
            errors.push(error);
            return report(&errors, &item);
        }
    };

    let options_are_all = errors.len();
    function.check(entry, &mut errors);
    if errors.len() == options_are_all {
        report(&errors, &function.expand(entry, &options))
    } else {
        report(&errors, &function.stand_in())
    }
}

/// `output`, preceded by the errors that the compiler is to show.
fn report(errors: &[Error], output: &TokenStream) -> TokenStream {
    let errors = errors.iter().map(Error::to_compile_error);
    quote!(#(#errors)* #output)
}

/// A function, with the parts that matter here taken apart.
struct Function {
    attrs: Vec<Attribute>,
    vis: Visibility,
    sig: Signature,
    /// The block, or the semicolon that stands in its place.
    body: TokenTree,
}

impl Function {
    /// Appends to `errors` each reason why `entry` cannot call this function.
    fn check(&self, entry: Entry, errors: &mut Vec<Error>) {
        let Self {
            attrs, sig, body, ..
        } = self;
        let mut refuse = |tokens: &dyn ToTokens, reason: &str| {
            errors.push(Error::new_spanned(tokens, format!("{entry} {reason}")));
        };

        for attr in attrs.iter().filter(|attr| entry.is_repeated_by(attr)) {
            refuse(attr, "is enough: remove this attribute");
        }
        if sig.asyncness.is_none() {
            refuse(
                &sig.fn_token,
                "runs an `async fn`: the `async` keyword is missing",
            );
        }
        if let Some(constness) = &sig.constness {
            refuse(
                constness,
                "starts a runtime: the function cannot be `const`",
            );
        }
        if let Some(unsafety) = &sig.unsafety {
            refuse(
                unsafety,
                "calls the function from safe code: it cannot be `unsafe`",
            );
        }
        if let Some(abi) = &sig.abi {
            refuse(
                abi,
                "calls the function from Rust: it cannot have another ABI",
            );
        }
        if !sig.generics.params.is_empty() {
            refuse(
                &sig.generics,
                "calls the function as it is: it cannot be generic",
            );
        }
        if let Some(clause) = &sig.generics.where_clause {
            refuse(
                clause,
                "calls the function as it is: it cannot have a `where` clause",
            );
        }
        if let Some(FnArg::Receiver(receiver)) = sig.inputs.first() {
            refuse(
                receiver,
                "calls the function without arguments: it cannot be a method",
            );
        } else if !sig.inputs.is_empty() || sig.variadic.is_some() {
            let (fixed, variadic) = (&sig.inputs, &sig.variadic);
            let parameters = quote!(#fixed #variadic);
            refuse(
                &parameters,
                "calls the function without arguments: it cannot have parameters",
            );
        }
        if !matches!(body, TokenTree::Group(_)) {
            refuse(body, "runs the body of the function: the body is missing");
        }
    }

    /// The function for the compiler. Only for one that passed [`check`](Self::check).
    ///
    /// Its first and last token have spans of the user, so it counts as the user's own and not as code of a macro,
    /// which most lints pass over.
    fn expand(&self, entry: Entry, options: &Options) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            body,
        } = self;
        let Signature {
            fn_token,
            ident,
            output,
            ..
        } = sig;

        let test = (entry == Entry::Test).then(|| quote!(#[::core::prelude::v1::test]));
        let mut block = Group::new(Delimiter::Brace, self.statements(entry, options));
        block.set_span(body.span());

        quote!(#test #(#attrs)* #vis #fn_token #ident() #output #block)
    }

    /// Declares the inner function, builds the runtime and runs the one on the other.
    ///
    /// Names that are not the user's resolve at the mixed site, so that they cannot clash with the user's. Errors that
    /// are about none of the user's tokens, and the panic, are shown at the attribute.
    ///
    /// Two lints are off because the user cannot heed them while the attribute is there, and the third because it
    /// looks at the outer function as well.
    fn statements(&self, entry: Entry, options: &Options) -> TokenStream {
        let Signature {
            asyncness,
            fn_token,
            ident,
            output,
            ..
        } = &self.sig;
        let (body, runtime, site) = (&self.body, options.runtime(), Span::mixed_site());
        let backend = options
            .backend
            .as_ref()
            .map(|variant| quote_spanned!(site=> .backend(#runtime::Backend::#variant)));

        let workers = match (&options.workers, entry) {
            (Some(Workers::Exactly(count)), _) => {
                // A number without a type of its own is a `usize` here, whatever its suffix was to be.
                let count = LitInt::new(count.base10_digits(), count.span());
                Some(quote_spanned!(site=> .workers(#count)))
            }
            (Some(Workers::PerCore), _) | (None, Entry::Main) => {
                Some(quote_spanned!(site=> .workers(#runtime::Workers::PerCore)))
            }
            (None, Entry::Test) => None,
        };

        quote_spanned! {site=>
            #[allow(clippy::single_call_fn, clippy::unused_async, non_snake_case)]
            #asyncness #fn_token #ident() #output #body

            match #runtime::Builder::new() #workers #backend .build() {
                ::core::result::Result::Ok(runtime) => runtime.block_on(#ident()),
                ::core::result::Result::Err(error) => {
                    ::core::panic!("failed to build the runtime: {}", error)
                }
            }
        }
    }

    /// An empty function of the same name, so that neither the linker nor a caller misses it.
    fn stand_in(&self) -> TokenStream {
        let (vis, ident) = (&self.vis, &self.sig.ident);
        quote!(#[allow(dead_code)] #vis fn #ident() {})
    }
}

/// What an attribute was put on.
enum Item {
    Function(Box<Function>),
    /// Anything else, with the span of the keyword that says so.
    Other(Span),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        if !starts_function(input)? {
            let span = input.span();
            input.parse::<TokenStream>()?;
            return Ok(Self::Other(span));
        }

        let sig = input.parse()?;
        if !input.peek(token::Brace) && !input.peek(Token![;]) {
            return Err(input.error("expected the body of the function"));
        }
        let body = input.parse()?;
        Ok(Self::Function(Box::new(Function {
            attrs,
            vis,
            sig,
            body,
        })))
    }
}

/// Whether `fn` comes after any number of qualifiers. Takes nothing from `input`.
fn starts_function(input: ParseStream<'_>) -> Result<bool, Error> {
    let ahead = input.fork();
    while !ahead.peek(Token![fn]) {
        let qualifier = ahead.peek(Token![const])
            || ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![extern])
            || ahead.peek(LitStr);
        if !qualifier {
            return Ok(false);
        }
        ahead.parse::<TokenTree>()?;
    }
    Ok(true)
}

impl Entry {
    /// The name of the attribute within the `runtime` crate.
    fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Test => "test",
        }
    }

    /// Whether `attr` does the same again: `#[test]` beside ours, or the attribute of the same name of any runtime.
    fn is_repeated_by(self, attr: &Attribute) -> bool {
        attr.path()
            .segments
            .last()
            .is_some_and(|last| last.ident == self.name())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`#[runtime::{}]`", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_wraps_the_body_in_an_inner_async_fn() {
        let function = quote! {
            async fn main() -> io::Result<()> {
                work().await?;
                Ok(())
            }
        };
        let expected = quote! {
            fn main() -> io::Result<()> {
                #[allow(clippy::single_call_fn, clippy::unused_async, non_snake_case)]
                #function

                match ::runtime::Builder::new().workers(::runtime::Workers::PerCore).build() {
                    ::core::result::Result::Ok(runtime) => runtime.block_on(main()),
                    ::core::result::Result::Err(error) => {
                        ::core::panic!("failed to build the runtime: {}", error)
                    }
                }
            }
        };
        assert_eq!(main(quote!(), function), expected.to_string());
    }

    #[test]
    fn options_reach_the_builder() {
        let args = quote!(backend = "uring", crate = "a::ring");
        let builder = quote!(
            a::ring::Builder::new()
                .workers(a::ring::Workers::PerCore)
                .backend(a::ring::Backend::Uring)
                .build()
        );
        assert!(
            main(
                args,
                quote!(
                    async fn main() {}
                )
            )
            .contains(&builder.to_string())
        );
    }

    #[test]
    fn a_test_has_one_worker_unless_it_asks_for_more() {
        let item = quote! { async fn works() {} };
        let build = quote!(::runtime::Builder::new().build()).to_string();
        assert!(test(quote!(), item.clone()).contains(&build));
        let build = quote!(::runtime::Builder::new().workers(3).build()).to_string();
        assert!(test(quote!(workers = 3), item.clone()).contains(&build));
        assert!(main(quote!(workers = 3), item).contains(&build));
    }

    #[test]
    fn attributes_and_visibility_go_to_the_outer_function() {
        let attrs = quote! {
            /// Documentation.
            #[expect(unused_variables, reason = "kept")]
            #[cold]
        };
        let inner = quote! { async fn serve() { let port = 7000; } };
        let output = main(quote!(), quote!(#attrs pub(crate) #inner));
        assert!(
            output.starts_with(&format!("{attrs} pub (crate) fn serve () {{ # [allow")),
            "{output}"
        );
        assert_eq!(output.matches("Documentation").count(), 1, "{output}");
        assert!(output.contains(&inner.to_string()), "{output}");
    }

    #[test]
    fn test_adds_the_attribute_and_keeps_the_others() {
        let attrs = quote! {
            #[should_panic(expected = "so")]
            #[ignore = "slow"]
        };
        let inner = quote! { async fn works() { try_it().await; } };
        let output = test(quote!(), quote!(#attrs #inner));
        let marker = quote!(#[::core::prelude::v1::test]);
        assert!(
            output.starts_with(&format!("{marker} {attrs} fn works () {{ # [allow")),
            "{output}"
        );
        assert!(output.contains(&inner.to_string()), "{output}");
    }

    #[test]
    fn the_body_need_not_be_known_to_syn() {
        let body = quote!({ #![allow(unused)] yeet do some ?? thing @ new; });
        assert!(main(quote!(), quote!(async fn main() #body)).contains(&body.to_string()));
    }

    #[test]
    fn each_unfit_part_of_the_signature_is_refused() {
        let cases = [
            ("fn f() {}", "the `async` keyword is missing"),
            ("const async fn f() {}", "cannot be `const`"),
            ("async unsafe fn f() {}", "cannot be `unsafe`"),
            ("async extern \"C\" fn f() {}", "cannot have another ABI"),
            ("async fn f<T>() {}", "cannot be generic"),
            ("async fn f<'a>() {}", "cannot be generic"),
            ("async fn f<const N: usize>() {}", "cannot be generic"),
            (
                "async fn f() where u8: Copy {}",
                "cannot have a `where` clause",
            ),
            ("async fn f(a: u8, b: u8) {}", "cannot have parameters"),
            ("async fn f(a: u8, ...) {}", "cannot have parameters"),
            ("async fn f(...) {}", "cannot have parameters"),
            ("async fn f(&self, a: u8) {}", "cannot be a method"),
            ("async fn f(self: Box<Self>) {}", "cannot be a method"),
            ("async fn f();", "the body is missing"),
        ];
        for (item, expected) in cases {
            for entry in [Entry::Main, Entry::Test] {
                let output = expand(entry, quote!(), item.parse().unwrap()).to_string();
                assert_eq!(output.matches("compile_error").count(), 1, "{output}");
                assert!(output.contains(expected), "{output}");
                assert!(output.contains(&entry.to_string()), "{output}");
                assert!(output.ends_with("fn f () { }"), "{output}");
            }
        }
    }

    #[test]
    fn errors_are_reported_all_at_once() {
        let item = "const unsafe extern \"C\" fn main<T>(_: T) where T: Copy {}";
        let output = main(quote!(backend = 1, fast), item.parse().unwrap());
        assert_eq!(output.matches("compile_error").count(), 2 + 7, "{output}");
    }

    #[test]
    fn a_wrong_option_leaves_the_function_usable() {
        let item = quote! { async fn main() { work().await } };
        let output = main(quote!(backend = "kqueue"), item.clone());
        assert_eq!(output.matches("compile_error").count(), 1, "{output}");
        assert!(output.ends_with(&main(quote!(), item)), "{output}");
    }

    #[test]
    fn a_second_declaration_is_refused() {
        for attr in [
            "test",
            "::core::prelude::v1::test",
            "other::test(threads = 1)",
        ] {
            let item = format!("#[ignore] #[{attr}] async fn f() {{}}")
                .parse()
                .unwrap();
            let output = test(quote!(), item);
            assert!(output.contains("remove this attribute"), "{output}");
        }

        let twice = quote! { #[runtime::main] async fn f() {} };
        assert!(main(quote!(), twice.clone()).contains("remove this attribute"));
        assert!(!test(quote!(), twice).contains("compile_error"));
    }

    #[test]
    fn other_items_stay_as_they_are() {
        let items = [
            "#[derive(Debug)] pub struct Main { async_fn: u8 }",
            "const MAIN: fn() = run;",
            "extern \"C\" { fn main(); }",
            "unsafe impl Send for Main {}",
            "mod main { fn main() {} }",
        ];
        for item in items {
            let item: TokenStream = item.parse().unwrap();
            let output = main(quote!(), item.clone());
            assert_eq!(output.matches("compile_error").count(), 1, "{output}");
            assert!(output.contains("is for functions only"), "{output}");
            assert!(output.ends_with(&item.to_string()), "{output}");
        }
    }

    fn main(args: TokenStream, item: TokenStream) -> String {
        expand(Entry::Main, args, item).to_string()
    }

    fn test(args: TokenStream, item: TokenStream) -> String {
        expand(Entry::Test, args, item).to_string()
    }
}
