package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// clientKeysCommand returns `svc admin client keys`, which replaces or removes the public keys with
// which a client authenticates instead of a secret (private_key_jwt).
func (p *program) clientKeysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Manage a client's public keys for private_key_jwt"}
	set := &cobra.Command{
		Use:   "set CLIENT FILE",
		Short: "Replace the keys with a JSON Web Key Set of public keys; FILE - is standard input",
		Args:  cobra.ExactArgs(2),
	}
	set.RunE = func(cmd *cobra.Command, args []string) error {
		jwks, err := readKeySet(cmd.InOrStdin(), args[1])
		if err != nil {
			return err
		}
		return withID(cmd.Context(), p, args[0],
			func(ctx context.Context, store *models.Store, id models.ClientID) error {
				return store.SetClientJWKS(ctx, id, jwks)
			})
	}
	remove := p.ofClient("remove", "Remove all public keys of a client",
		func(store *models.Store, ctx context.Context, id models.ClientID) error {
			return store.SetClientJWKS(ctx, id, nil)
		})
	cmd.AddCommand(acting(models.ActSetClientKeys, set), acting(models.ActRemoveClientKeys, remove))
	return cmd
}

// readKeySet reads a JSON Web Key Set from the file name, or from stdin if name is "-". It refuses
// a set that [auth.CheckClientJWKS] refuses.
func readKeySet(stdin io.Reader, name string) (json.RawMessage, error) {
	read := func() ([]byte, error) { return os.ReadFile(name) }
	if name == "-" {
		read = func() ([]byte, error) { return io.ReadAll(stdin) }
	}
	raw, err := read()
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	return raw, auth.CheckClientJWKS(raw)
}
