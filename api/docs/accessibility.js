// Completes what the viewer leaves out for keyboards and screen readers.
{
  const row = element => element.closest('tr')
  // Each rule sets an attribute of what its selector matches. null removes the attribute. A value
  // may be a function of the element.
  const rules = [
    // Names.
    ['.code-copy, [class*="/copy-button"]', 'title', 'Copy'],
    ['.show-more', 'aria-label', element => element.ariaLabel?.replace(/^Show all /, 'Show more ') ?? null],
    ['.cm-content', 'aria-label', element => row(element)?.querySelector('label')?.textContent.trim() ??
      element.parentElement.closest('td [aria-label]')?.ariaLabel.replace('undefined ', '') ?? 'Body'],
    ['td > [type=checkbox]', 'aria-label', element => row(element)?.id ||
      row(element)?.querySelector('span')?.textContent || 'Selected'],
    ['[role=combobox]:not([aria-label])', 'aria-label', 'Filter'],
    ['[role=dialog] > [aria-label^=Notifications]', 'aria-label', 'Results of requests'],
    // Roles, and attributes that the role of an element does not have.
    ['button[role=search], button[role=none], aside[role=navigation]', 'role', null],
    ['[role=listbox] > [aria-labelledby], .response-card', 'role', 'group'],
    ['[role=combobox]', 'aria-expanded', 'true'],
    ['aside button[aria-selected]', 'aria-current', element => element.ariaSelected],
    ['aside button[aria-selected]', 'aria-selected', null],
    ['[class*="/copy-button"]', 'aria-controls', null],
    // Parts that scroll.
    ['.endpoints, .cm-content, td.overflow-x-scroll', 'tabindex', '0'],
  ]

  const any = rules.map(([selector]) => selector).join()
  const mend = element => {
    for (const [selector, attribute, value] of rules) {
      if (!element.matches(selector)) continue
      const wanted = typeof value === 'function' ? value(element) : value
      if (wanted === element.getAttribute(attribute)) continue
      if (wanted === null) element.removeAttribute(attribute)
      else element.setAttribute(attribute, wanted)
    }
  }

  // The changes since the last frame.
  let records = []
  const mendChanged = () => {
    const batch = records
    records = []
    for (const { type, target, addedNodes } of batch) {
      if (type === 'attributes') mend(target)
      for (const node of addedNodes) {
        if (!(node instanceof Element)) continue
        mend(node)
        node.querySelectorAll(any).forEach(mend)
      }
    }
    // The body does not scroll while the viewer covers the page.
    document.querySelector('.references-rendered')?.toggleAttribute('inert', document.body.style.overflow === 'hidden')
  }
  new MutationObserver(more => {
    if (!records.length) requestAnimationFrame(mendChanged)
    records.push(...more)
  }).observe(document.body, {
    childList: true, subtree: true, attributeFilter: ['aria-label', 'aria-selected', 'style'],
  })
}
