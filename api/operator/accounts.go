// Package operator authenticates operators by HTTP basic authentication against named accounts. It
// slows guesses down without locking an operator out.
package operator

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/crypto/bcrypt"
)

// hashCost is the bcrypt cost of every hash. Because all hashes have the same cost, verification
// against a hash takes the same time for all accounts and for unknown names. Only tests change it.
var hashCost = 12

// MinPassword is the minimum length of a password, in bytes. Only a sandbox may configure a shorter
// one.
const MinPassword = 16

// maxPassword is the maximum length of a password, in bytes. bcrypt ignores all bytes after it.
const maxPassword = 72

// maxName is the maximum length of an account's name, in bytes.
const maxName = 64

// Role says what an operator may do.
type Role string

// The roles.
const (
	RoleLook Role = "look" // reads everything, changes nothing
	RoleAct  Role = "act"  // also performs acts, which the audit log records
)

// ParseRole reads a role.
func ParseRole(text string) (Role, error) {
	if role := Role(text); role == RoleLook || role == RoleAct {
		return role, nil
	}
	return "", fmt.Errorf("operator: the role must be %s or %s", RoleLook, RoleAct)
}

// Account is an operator's account.
type Account struct {
	Role Role
	hash func() []byte // of the password; a plain password is hashed at the first call
}

// Accounts are the operators' accounts by name.
type Accounts map[string]Account

// Hash returns a line of an accounts file: the name, the bcrypt hash of the password, and the role.
// It refuses a malformed name, a password that is too short or too long, and an unknown role.
func Hash(name, password string, role Role) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if _, err := ParseRole(string(role)); err != nil {
		return "", err
	}
	if len(password) < MinPassword || len(password) > maxPassword {
		return "", fmt.Errorf("operator: the password must have %d to %d bytes", MinPassword, maxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	return name + ":" + string(hash) + ":" + string(role), err
}

// checkName returns an error unless the name has 1 to maxName bytes without colons, white space and
// control characters.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool {
		return r == ':' || unicode.IsControl(r) || unicode.IsSpace(r)
	}) {
		return fmt.Errorf("operator: the name must have 1 to %d bytes, without colon and white space", maxName)
	}
	return nil
}

// ParseAccounts parses an accounts file: lines of name:hash:role as Hash writes them, or name:hash
// as `htpasswd -nB -C 12` writes them, which means the role look. Empty lines and lines that begin
// with # are ignored.
func ParseAccounts(text string) (Accounts, error) {
	accounts := Accounts{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		hash, role, hasRole := strings.Cut(rest, ":")
		if !hasRole {
			role = string(RoleLook)
		}
		if err := accounts.addHash(name, []byte(hash), role); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err) // without the line, which may hold a secret
		}
	}
	return accounts, nil
}

func (a Accounts) add(name string, account Account) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, repeated := a[name]; repeated {
		return errors.New("operator: the name is repeated")
	}
	a[name] = account
	return nil
}

func (a Accounts) addHash(name string, hash []byte, role string) error {
	parsed, err := ParseRole(role)
	if err != nil {
		return err
	}
	if cost, err := bcrypt.Cost(hash); err != nil || cost != hashCost {
		return fmt.Errorf("operator: the hash must be bcrypt of cost %d, as svc admin operator hash prints", hashCost)
	}
	return a.add(name, Account{parsed, func() []byte { return hash }})
}

// AddPassword adds an account with a password that the configuration holds in plain text. It does
// not check MinPassword.
func (a Accounts) AddPassword(name, password string, role Role) error {
	if len(password) > maxPassword {
		return fmt.Errorf("operator: the password must have at most %d bytes", maxPassword)
	}
	return a.add(name, Account{role, sync.OnceValue(func() []byte {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
		if err != nil {
			panic(err) // only for a longer password or an impossible cost
		}
		return hash
	})})
}
