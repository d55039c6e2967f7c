package models

import (
	"context"
	"errors"
	"slices"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// partyStep is the maximum number of rows in one step over sealed parties.
const partyStep = 500

var (
	linkDataSQL = postgres.SQL(`
SELECT id AS link_id, state, invited_at, expires_at, linked_at, revoked_at, trace_id, party FROM customer_links
WHERE site_id = :site AND customer_reference = :reference ORDER BY invited_at, id`)
	rowDataSQL = postgres.SQL(`
SELECT b.batch_reference, r.row_reference, r.link_id, r.amount, b.currency, r.state, r.outcome, r.corrected_outcome,
       b.submitted_at, r.settled_at
FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id
WHERE b.site_id = :site AND r.customer_reference = :reference ORDER BY b.submitted_at, b.id, r.row_index`)
	movementDataSQL = postgres.SQL(`
SELECT rail_key, recorded_at, amount, currency, batch_reference, row_reference FROM ledger_entries
WHERE site_id = :site AND customer_reference = :reference ORDER BY recorded_at, rail_key`)
	paymentDataSQL = postgres.SQL(`
SELECT id AS payment_intent_id, transaction_id, order_id, amount, amount_charged, currency, state, transaction_status,
       started_at, final_at, party
FROM payment_intents WHERE site_id = :site AND id > :after AND transaction_id IS NOT NULL ORDER BY id LIMIT :limit`)

	lockLinksSQL = postgres.SQL(`
SELECT id AS link_id, state, party FROM customer_links
WHERE site_id = :site AND customer_reference = :reference ORDER BY id FOR UPDATE`)
	openRowsOfCustomerSQL = postgres.SQL(`
SELECT EXISTS (
    SELECT FROM outbox o JOIN batch_rows r ON r.site_id = o.site_id AND r.batch_id = o.subject_id
        AND r.row_index BETWEEN o.first_row AND o.last_row
    WHERE o.site_id = :site AND o.kind = :kind AND r.customer_reference = :reference
      AND (r.state <> 'settled' OR r.in_doubt))`)
	eraseLinksSQL = postgres.SQL(`
UPDATE customer_links SET party = NULL WHERE site_id = :site AND id = ANY (:links::uuid[])`)
	erasePaymentsSQL = postgres.SQL(`
UPDATE payment_intents SET party = '' WHERE site_id = :site AND id = ANY (:payments::uuid[]) AND state = 'final'`)
)

// ExportCustomer returns everything that is stored about the customer of a reference. It reads all
// batches and payments of the Site. It leaves out the rows of removed batches, which still exist
// until their partition is dropped. ErrNotFound: the Site has no link of the reference.
func (s *Store) ExportCustomer(ctx context.Context, site SiteID, reference string) (data CustomerData, err error) {
	data = CustomerData{SiteID: site, CustomerReference: reference}
	args := postgres.Args{"site": site, "reference": reference}
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement)
		if err != nil {
			return err
		}
		if err := tx.Select(ctx, linkDataSQL, args, &data.Links); err != nil {
			return err
		}
		if len(data.Links) == 0 {
			return notFoundError("customer")
		}
		customers, err := s.openLinks(data.Links)
		if err != nil {
			return err
		}
		if err := tx.Select(ctx, rowDataSQL, args, &data.Rows); err != nil {
			return err
		}
		if err := tx.Select(ctx, movementDataSQL, args, &data.Movements); err != nil {
			return err
		}
		data.Payments, err = s.paymentsOf(ctx, tx, site, customers)
		return err
	})
	return data, wrap("export customer", err)
}

// openLinks opens the parties of links, and returns the ids of their customers.
func (s *Store) openLinks(links []LinkData) (customers []string, err error) {
	for i := range links {
		party, err := openParty(s, links[i].Party, links[i].LinkID)
		if err != nil {
			return nil, err
		}
		links[i].PartyData = PartyData(party)
		if party.CustomerID != "" {
			customers = append(customers, party.CustomerID)
		}
	}
	return customers, nil
}

// paymentsOf returns the payments that customers made on a Site. It opens the party of every
// payment, because nothing else in the database connects the payments of one customer.
func (s *Store) paymentsOf(
	ctx context.Context, tx postgres.Tx, site SiteID, customers []string,
) (payments []PaymentData, err error) {
	var after PaymentIntentID
	for len(customers) > 0 {
		var page []PaymentData
		err := tx.Select(ctx, paymentDataSQL, postgres.Args{"site": site, "after": after, "limit": partyStep}, &page)
		if err != nil {
			return nil, err
		}
		for _, p := range page {
			party, err := openParty(s, p.Party, p.PaymentIntentID)
			if err != nil {
				return nil, err
			}
			if slices.Contains(customers, party.CustomerID) {
				p.PartyData = PartyData(party)
				payments = append(payments, p)
			}
			after = p.PaymentIntentID
		}
		if len(page) < partyStep {
			break
		}
	}
	return payments, nil
}

// EraseCustomer revokes the live link of a reference. It removes customer and agreement from all
// links of the reference, and from the payments that the customers of these links made on the Site.
// References, amounts and the ledger remain. It returns the numbers of links and payments that it
// has erased. Errors: ErrNotFound; ErrCustomerInUse, after which nothing has changed.
func (s *Store) EraseCustomer(ctx context.Context, site SiteID, reference string) (links, payments int, err error) {
	err = s.act(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement)
		if err != nil {
			return err
		}
		var found []LinkData
		args := postgres.Args{"site": site, "reference": reference}
		if err := tx.Select(ctx, lockLinksSQL, args, &found); err != nil {
			return err
		}
		if len(found) == 0 {
			return notFoundError("customer")
		}
		actFrom(ctx).about(SubjectCustomerLink, found[len(found)-1].LinkID.String()).in(OrganisationID{}, site)
		for _, l := range found {
			if l.State != LinkInvited && l.State != LinkLinked {
				continue
			}
			_, err := revokeLink(ctx, tx, site, l.LinkID)
			if err != nil && !errors.Is(err, ErrLinkExpired) { // an invitation past expiry has ended by itself
				return err
			}
		}
		links, payments, err = s.eraseParties(ctx, tx, site, reference, found)
		return err
	})
	return links, payments, wrap("erase customer", err)
}

// eraseParties erases the parties of the locked links of a reference, and of the payments of their
// customers. It returns the numbers of both.
func (s *Store) eraseParties(
	ctx context.Context, tx postgres.Tx, site SiteID, reference string, found []LinkData,
) (links, payments int, err error) {
	var inUse bool
	err = tx.Get(ctx, openRowsOfCustomerSQL,
		postgres.Args{"site": site, "reference": reference, "kind": string(TaskDebitRows)}, &inUse)
	if err != nil {
		return 0, 0, err
	}
	customers, err := s.openLinks(found)
	if err != nil {
		return 0, 0, err
	}
	paid, err := s.paymentsOf(ctx, tx, site, customers)
	if err != nil {
		return 0, 0, err
	}
	ids := make([]PaymentIntentID, len(paid))
	for i, p := range paid {
		ids[i], inUse = p.PaymentIntentID, inUse || p.State != IntentFinal
	}
	if inUse {
		return 0, 0, ErrCustomerInUse
	}
	var erased []LinkID
	for _, l := range found {
		if len(l.Party) > 0 {
			erased = append(erased, l.LinkID)
		}
	}
	if _, err := tx.Run(ctx, eraseLinksSQL, postgres.Args{"site": site, "links": erased}); err != nil {
		return 0, 0, err
	}
	payments, err = tx.Run(ctx, erasePaymentsSQL, postgres.Args{"site": site, "payments": ids})
	return len(erased), payments, err
}

// newResealParties returns the statements that read and write sealed parties of a table. Reading
// follows the order of site_id and id, and skips parties under the current master key.
func newResealParties(table string) (read, write postgres.Statement) {
	read = postgres.SQL(`
SELECT site_id, id, party FROM ` + table + ` WHERE (site_id, id) > (:site, :id) AND length(party) > 0
  AND substr(party, 1, length(:head::bytea)) <> :head::bytea
ORDER BY site_id, id LIMIT :limit FOR UPDATE`)
	write = postgres.SQL(`
UPDATE ` + table + ` t SET party = v.party
FROM unnest(:sites::uuid[], :ids::uuid[], :parties::bytea[]) AS v (site_id, id, party)
WHERE t.site_id = v.site_id AND t.id = v.id`)
	return read, write
}

var (
	readLinkPartiesSQL, writeLinkPartiesSQL       = newResealParties("customer_links")
	readPaymentPartiesSQL, writePaymentPartiesSQL = newResealParties("payment_intents")
)

// ResealParties encrypts customers and agreements again under the ring's first master key, in
// transactions of at most 500 rows, and returns the number of changed rows. A call after an
// interruption finds only the rows that are left.
func (s *Store) ResealParties(ctx context.Context, ring *seal.Keyring) (changed int, err error) {
	links, err := resealParties[linkNoun](ctx, s, ring, readLinkPartiesSQL, writeLinkPartiesSQL)
	if err != nil {
		return links, wrap("reseal customer links", err)
	}
	payments, err := resealParties[intentNoun](ctx, s, ring, readPaymentPartiesSQL, writePaymentPartiesSQL)
	return links + payments, wrap("reseal payment intents", err)
}

// resealParties is ResealParties for one table, with its statements of newResealParties.
func resealParties[N Noun](
	ctx context.Context, s *Store, ring *seal.Keyring, read, write postgres.Statement,
) (changed int, err error) {
	var site SiteID
	var id ID[N]
	for {
		var rows []struct {
			SiteID SiteID
			ID     ID[N]
			Party  []byte
		}
		err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
			rows = nil
			ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement)
			if err != nil {
				return err
			}
			err = tx.Select(ctx, read, postgres.Args{
				"site": site, "id": id, "head": ring.Head(), "limit": partyStep,
			}, &rows)
			if err != nil || len(rows) == 0 {
				return err
			}
			sites, ids, parties := make([]SiteID, len(rows)), make([]ID[N], len(rows)), make([][]byte, len(rows))
			for i, r := range rows {
				sites[i], ids[i] = r.SiteID, r.ID
				if parties[i], _, err = ring.Reseal(r.Party, partyAAD(r.ID)); err != nil {
					return err
				}
			}
			_, err = tx.Run(ctx, write, postgres.Args{"sites": sites, "ids": ids, "parties": parties})
			return err
		})
		if err != nil {
			return changed, err
		}
		if len(rows) == 0 {
			return changed, nil
		}
		last := rows[len(rows)-1]
		site, id, changed = last.SiteID, last.ID, changed+len(rows)
	}
}
