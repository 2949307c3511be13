/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 of a local sandbox. */
int main(void)
{
    return 0;
}
