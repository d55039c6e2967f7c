// Keeps the live parts of a page fresh, and offers to copy texts. Every page works without it.
(() => {
  "use strict";

  const isBusy = (part) => {
    const active = document.activeElement;
    const selection = document.getSelection();
    return (part.contains(active) && active.matches("input,select,textarea,button,a,summary")) ||
      (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  };

  const announce = (fresh) => {
    const text = fresh.dataset.announce;
    const place = document.getElementById("announcement");
    if (text && place && place.textContent !== text) place.textContent = text;
  };

  const merge = (next) => {
    for (const fresh of next.querySelectorAll("[data-live]")) {
      const old = document.getElementById(fresh.id);
      if (!old || isBusy(old)) continue;
      for (const details of old.querySelectorAll("details[open][id]")) {
        const same = fresh.querySelector("#" + CSS.escape(details.id));
        if (same) same.open = true;
      }
      for (const scrolled of old.querySelectorAll(".tall")) {
        const same = fresh.querySelector(".tall");
        if (same) same.dataset.scroll = scrolled.scrollTop;
      }
      const part = document.importNode(fresh, true);
      offerCopies(part);
      if (part.innerHTML === old.innerHTML) continue;
      old.replaceWith(part);
      for (const scrolled of part.querySelectorAll("[data-scroll]")) {
        scrolled.scrollTop = Number(scrolled.dataset.scroll);
        scrolled.removeAttribute("data-scroll");
      }
      announce(part);
    }
  };

  const poll = async (interval) => {
    let again = true;
    const began = performance.now();
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { redirect: "manual", cache: "no-store" });
        if (answer.type === "opaqueredirect") return location.reload(); // the session has ended
        again = answer.ok || answer.status === 429 || answer.status >= 500;
        if (answer.ok) {
          const next = new DOMParser().parseFromString(await answer.text(), "text/html");
          merge(next);
          again = "poll" in next.body.dataset;
        }
      } catch {
        // The service may be on its way up again.
      }
    }
    // A large page is asked for less often.
    if (again) setTimeout(poll, Math.max(interval, 4 * (performance.now() - began)), interval);
  };

  const offerCopies = (root) => {
    if (!navigator.clipboard) return;
    for (const part of root.querySelectorAll("[data-copy]")) {
      if (part.dataset.copy) continue;
      part.dataset.copy = "offered";
      const text = part.textContent;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "small copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy " + (text.length > 40 ? "this text" : text));
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      if (part.matches("pre")) part.prepend(button); else part.after(button);
    }
  };

  // On a phone the navigation scrolls, and the current entry may be out of sight.
  const current = document.querySelector(".side nav [aria-current]");
  if (current) current.scrollIntoView({ block: "nearest", inline: "center" });

  offerCopies(document);
  const interval = Number(document.body.dataset.poll);
  if (interval > 0) setTimeout(poll, interval, interval);
})();
