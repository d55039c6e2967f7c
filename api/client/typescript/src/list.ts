/** A page of a list. */
export interface Page<Item> {
  items: Item[]
  nextHref?: string
}

/**
 * A list of the API. Iterating over it yields all items, and fetches pages as they are needed.
 *
 *     for await (const customer of client.listCustomers(site, { state: 'linked' })) …
 */
export class List<Item, P extends Page<Item> = Page<Item>> implements AsyncIterable<Item> {
  readonly #fetch: (href?: string) => Promise<P>

  /** @internal */
  constructor(fetch: (href?: string) => Promise<P>) {
    this.#fetch = fetch
  }

  /** Returns the first page, with the totals of lists that have them. */
  firstPage(): Promise<P> {
    return this.#fetch()
  }

  /** Iterates over the pages. */
  async *pages(): AsyncGenerator<P, void, undefined> {
    let page = await this.#fetch()
    yield page
    while (page.nextHref !== undefined) {
      page = await this.#fetch(page.nextHref)
      yield page
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    for await (const page of this.pages()) yield* page.items
  }

  /** Returns all items, in order. */
  async toArray(): Promise<Item[]> {
    const all: Item[] = []
    for await (const item of this) all.push(item)
    return all
  }
}
