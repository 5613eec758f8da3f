use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::channel;

use super::*;

/// Draws a number.
struct Number(u64);

impl SearchPageReport for Number {
    fn offline_page(&self, note: Option<&str>) -> anyhow::Result<String> {
        Ok(format!("{}{}", self.0, note.map_or("", |_| " so far")))
    }

    fn live_page(&self, live: SearchStatus) -> anyhow::Result<String> {
        self.live_event(live)
    }

    fn live_event(&self, live: SearchStatus) -> anyhow::Result<String> {
        Ok(format!("{} {} {:?} {:?}", self.0, live.state, live.doing, live.file))
    }
}

fn doing(text: &'static str) -> ActivityFormatter {
    Box::new(move |_| text.to_owned())
}

fn told(news: SearchPageUpdate<Number>) -> (String, Option<u64>) {
    match news {
        SearchPageUpdate::Step(doing, so_far) => (doing(Duration::ZERO), so_far.map(|known| known.0)),
        SearchPageUpdate::Finished(answer) => ("over".to_owned(), Some(answer.0)),
    }
}

#[test]
fn a_page_for_which_there_is_no_room_is_told_the_newest_later_and_the_end_always() {
    let (sender, mut heard) = channel(1);
    let mut page = SearchPage { feed: PageFeed::new(sender, None), so_far: None };
    let mut next = || heard.try_recv().ok().map(told);
    page.show_activity(doing("one"));
    page.set_interim_report(Number(1));
    page.show_activity(doing("two"));
    page.set_interim_report(Number(2));
    page.show_activity(doing("three"));
    assert_eq!(next(), Some(("one".to_owned(), None)));
    page.show_activity(doing("four"));
    assert_eq!(next(), Some(("four".to_owned(), Some(2))), "what is known, although it was known before");
    page.show_activity(doing("five"));
    assert_eq!(next(), Some(("five".to_owned(), None)), "and once");
    page.end(Number(3));
    assert_eq!(next(), Some(("over".to_owned(), Some(3))));
}

#[test]
fn a_search_goes_on_when_its_page_is_gone() {
    let (sender, heard) = channel(1);
    let mut page = SearchPage { feed: PageFeed::new(sender, None), so_far: None };
    drop(heard);
    page.show_activity(doing("one"));
    page.set_interim_report(Number(1));
    page.show_activity(doing("two"));
    page.end(Number(3));
}

#[test]
fn a_page_shows_what_is_known_and_done_and_at_the_end_has_the_file() {
    let mut shown = SearchPageContent::new(Number(0), Box::new(|| ()));
    assert_eq!(shown.event().unwrap(), "0 running \"beginning\" None");
    shown.update(SearchPageUpdate::Step(doing("a trial"), Some(Number(1))));
    shown.update(SearchPageUpdate::Step(doing("a rest"), None));
    assert_eq!(shown.page().unwrap(), "1 running \"a rest\" None");
    assert_eq!((shown.is_final(), shown.report().unwrap()), (false, Some("1 so far".to_owned())));
    shown.update(SearchPageUpdate::Finished(Number(2)));
    assert_eq!(shown.event().unwrap(), "2 over \"\" Some(\"2\")");
    assert_eq!((shown.is_final(), shown.report().unwrap()), (true, Some("2".to_owned())));
}

#[test]
fn a_page_obeys_stop_alone_and_only_while_the_search_goes_on() {
    let stopped = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&stopped);
    let mut shown =
        SearchPageContent::new(Number(0), Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
    for line in ["", "rate 5/s", "pause", "stop now", "STOP"] {
        let said = shown.run_command(line);
        assert!(said.starts_with("error: ") && said.contains("expected stop"), "{said}");
    }
    assert_eq!(stopped.load(Ordering::Relaxed), 0);
    assert_eq!(shown.run_command("stop\n"), "ok stop");
    assert_eq!((stopped.load(Ordering::Relaxed), shown.live().unwrap().state), (1, "ending"));
    shown.update(SearchPageUpdate::Finished(Number(2)));
    assert!(shown.run_command("stop").starts_with("error: "));
    assert_eq!(stopped.load(Ordering::Relaxed), 1);
}
