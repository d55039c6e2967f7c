package models

import (
	"encoding/binary"
	"errors"
	"fmt"

	"partnerbilling/models/seal"
)

// Party identifies the customer and agreement of a sign-up or a payment. Partners never see it. It
// is stored encrypted ("sealed") under the master key, bound to the row that it belongs to.
type Party struct {
	CustomerID  string // as the customer app names the customer
	AgreementID string // as the customer app names the agreement that the rail debits
}

// errNoKeyring says that the process has no master key for a Party.
var errNoKeyring = errors.New("models: customer and agreement need the master key")

// SetKeyring sets the master keys that seal a Party. It must precede every other call.
func (s *Store) SetKeyring(ring *seal.Keyring) { s.ring = ring }

// sealParty seals a party and binds it to the row with the id. The plain text is the length of
// CustomerID as a uvarint, CustomerID and AgreementID.
func sealParty[N Noun](s *Store, party Party, row ID[N]) ([]byte, error) {
	if s.ring == nil {
		return nil, errNoKeyring
	}
	plain := binary.AppendUvarint(nil, uint64(len(party.CustomerID)))
	plain = append(append(plain, party.CustomerID...), party.AgreementID...)
	return s.ring.Seal(plain, partyAAD(row)), nil
}

// openParty opens the sealed party of the row with the id. Without sealed bytes, the party is zero:
// no customer has signed up, or the party was erased.
func openParty[N Noun](s *Store, sealed []byte, row ID[N]) (Party, error) {
	switch {
	case len(sealed) == 0:
		return Party{}, nil
	case s.ring == nil:
		return Party{}, errNoKeyring
	}
	plain, err := s.ring.Open(sealed, partyAAD(row))
	if err != nil {
		return Party{}, fmt.Errorf("models: party of %s: %w", row, err)
	}
	length, n := binary.Uvarint(plain)
	if n <= 0 || length > uint64(len(plain)-n) { //nolint:gosec // Uvarint reads at most len(plain) bytes
		return Party{}, fmt.Errorf("models: party of %s: %w", row, seal.ErrOpen)
	}
	text := string(plain[n:])
	return Party{CustomerID: text[:length], AgreementID: text[length:]}, nil
}

// readParty is openParty, but reports a party that cannot be decrypted as unreadable, not as an
// error. One such row thus does not fail the other rows of a statement.
func readParty[N Noun](s *Store, sealed []byte, row ID[N]) (party Party, unreadable bool, err error) {
	party, err = openParty(s, sealed, row)
	if errors.Is(err, seal.ErrOpen) {
		return Party{}, true, nil
	}
	return party, false, err
}

// partyAAD returns the additional authenticated data that binds a sealed party to its row: the noun
// and the bytes of the id.
func partyAAD[N Noun](row ID[N]) []byte {
	var noun N
	aad := make([]byte, 0, 32)
	aad = append(append(aad, "party of "...), noun.prefix()...)
	return append(aad, row[:]...)
}
