// Runs in each checked page.
globalThis.webtest = {
  // audit returns the page's faults: "all" applies every rule of axe-core, "colours" those of
  // contrast, "none" only checks the width.
  async audit(rules) {
    const faults = [];
    await webtest.settled();
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth) {
      const reach = (element) => Math.abs(element.getBoundingClientRect().right + scrollX - width) < 1;
      const widest = [...document.querySelectorAll("body *")].filter(reach).map((element) => element.outerHTML.slice(0, 100));
      faults.push(`${width - innerWidth} pixels wider than the window: ${widest.join(", ")}`);
    }
    if (rules === "none") return faults;
    const options = { resultTypes: ["violations"] };
    if (rules === "colours") options.runOnly = ["color-contrast", "link-in-text-block"];
    const { violations } = await axe.run(options);
    for (const rule of violations) {
      for (const node of rule.nodes) {
        faults.push(`${rule.id} (${rule.impact}): ${node.html.slice(0, 200)}: ${node.failureSummary.replace(/\s+/g, " ")}`);
      }
    }
    return faults;
  },

  // settled waits until the page has followed a new width or colour scheme.
  async settled() {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));
    const transitions = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    await Promise.allSettled(transitions.map((transition) => transition.finished));
  },

  // focused describes the element that has the focus.
  focused() {
    const element = document.activeElement;
    const label = element.labels?.[0] ?? element;
    const style = getComputedStyle(element);
    return {
      Name: (element.getAttribute("aria-label") ?? label.textContent).replace(/\s+/g, " ").trim(),
      Kind: element.localName + (element.type && element.localName === "input" ? " " + element.type : ""),
      Hidden: style.outlineStyle === "none" && style.boxShadow === "none",
    };
  },
};
