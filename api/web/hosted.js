(() => {
  "use strict";

  // Times appear in the reader's time zone.
  const locale = navigator.languages.find((language) => language.startsWith("en")) ?? "en-AU";
  const timeFormat = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "short" });

  const prepare = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      time.textContent = timeFormat.format(new Date(time.dateTime));
    }
    for (const button of root.querySelectorAll("[data-print]")) {
      button.hidden = false;
      button.addEventListener("click", () => print());
    }
  };

  // show replaces the content with that of a page in another state, and tells it to screen readers.
  const show = (page) => {
    const old = document.querySelector("main"), fresh = page.querySelector("main");
    if (!fresh || fresh.dataset.state === old.dataset.state) return;
    const focused = old.contains(document.activeElement);
    const main = document.importNode(fresh, true);
    prepare(main);
    old.replaceWith(main);
    document.title = page.title;
    const heading = main.querySelector("h1");
    document.getElementById("announcement").textContent = heading.textContent;
    if (focused) {
      heading.tabIndex = -1;
      heading.focus();
    }
  };

  // follow looks at the state of the page again until the state is final.
  const follow = (pause) => {
    const interval = Number(document.querySelector("main").dataset.poll);
    if (interval > 0) setTimeout(look, Math.max(pause, interval), Math.max(pause, interval));
  };

  const look = async (pause) => {
    let failed = false;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.pathname, { cache: "no-store" });
        failed = answer.status === 429 || answer.status >= 500;
        if (!failed) show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } catch {
        failed = true; // the phone may be without a network for a moment
      }
    }
    follow(failed ? Math.min(2 * pause, 30000) : 0);
  };

  prepare(document);
  follow(0);
})();
